"""Candidates that came with a dataset, from the files to the metrics."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from foretaste.data import prepare
from foretaste.errors import DatasetError, SettingError
from foretaste.evaluation.evaluator import evaluate
from foretaste.training.auto import check_candidates
from tests.evaluation.worlds import TableModel, held_out, histories
from tests.messages import raises

NUM_USERS, NUM_ITEMS, K = 80, 50, 5


@pytest.fixture
def negatives(tmp_path: Path) -> dict[int, tuple[int, list[int]]]:
    """Writes a triple; each user's test item and candidates, among them repeats, items the user
    has in training and, for every tenth user, the test item itself."""
    generator = np.random.default_rng(0)
    train, test, lines, found = [], [], [], {}
    for user in range(NUM_USERS):
        items = generator.permutation(NUM_ITEMS)
        train += [f"{user}\t{item}\t5\t{n}\n" for n, item in enumerate(items[:8])]
        drawn = generator.choice(np.delete(items, 8), 20).tolist()
        if user % 10 == 0:
            drawn[3] = int(items[8])
        test.append(f"{user}\t{items[8]}\t5\t99\n")
        lines.append(f"({user},{items[8]})\t" + "\t".join(map(str, drawn)) + "\n")
        found[user] = int(items[8]), drawn
    for name, rows in (("train.rating", train), ("test.rating", test), ("test.negative", lines)):
        (tmp_path / f"tiny.{name}").write_text("".join(rows))
    return found


def as_the_paper_measures(
    scores: np.ndarray, negatives: dict[int, tuple[int, list[int]]]
) -> tuple[float, float]:
    """HR@K and NDCG@K as He et al. compute them: scores by item in a dict, the K largest of it."""
    hits, gains = [], []
    for user, (target, items) in negatives.items():
        score_of = {item: scores[user, item] for item in [*items, target]}
        best = heapq.nlargest(K, score_of, key=lambda item: score_of[item])
        hits.append(target in best)
        gains.append(math.log(2) / math.log(best.index(target) + 2) if target in best else 0)
    return float(np.mean(hits)), float(np.mean(gains))


@pytest.mark.parametrize("at_once", [1 << 16, 100])
def test_the_paper_would_get_the_same_numbers(
    negatives: dict[int, tuple[int, list[int]]],
    tmp_path: Path,
    limit: Callable[..., None],
    at_once: int,
) -> None:
    limit(candidate_scores=at_once)
    dataset = prepare(tmp_path / "tiny.train.rating", tmp_path / "out")
    assert dataset.items.ids() == list(range(NUM_ITEMS))
    scores = np.random.default_rng(1).permutation(NUM_USERS * NUM_ITEMS).astype(np.float32)
    scores = scores.reshape(NUM_USERS, NUM_ITEMS)
    model, heldout = TableModel(torch.tensor(scores)), dataset.heldout("test")
    found = evaluate(model, heldout, candidates="fixed", k=[1, K])
    hr, ndcg = as_the_paper_measures(scores, negatives)
    assert found.num_users == len(negatives)
    assert 0.05 < hr < 0.95
    assert found[f"hr@{K}"] == pytest.approx(hr)
    assert found[f"ndcg@{K}"] == pytest.approx(ndcg)
    assert not any(name.startswith("coverage") for name in found.metrics)
    assert "the candidates that came with the dataset" in found.definitions()[1]


def test_lists_of_different_lengths_and_several_targets() -> None:
    scores = torch.tensor([[9.0, 8, 7, 6, 5, 4]] * 2)
    heldout = held_out([[2], [4]], [[1, 4], [5]], num_items=6)
    heldout = replace(heldout, candidates=histories([[0, 3], [0, 1, 2, 3]], 6))
    found = evaluate(TableModel(scores), heldout, candidates="fixed", k=[1, 2, 5]).per_user
    # User 0: 0 1 3 4, with targets 1 and 4. User 1: 0 1 2 3 5.
    assert found["recall_all@2"].tolist() == [0.5, 0]
    assert found["mrr@5"].tolist() == [0.5, 0.2]


def test_fixed_candidates_that_are_missing(tmp_path: Path) -> None:
    heldout = held_out([[0]], [[1]], num_items=3)
    with raises(DatasetError, "candidates", "fixed", "test"):
        evaluate(TableModel(torch.zeros(1, 3)), heldout, candidates="fixed", k=[1])
    source = tmp_path / "raw.csv"
    source.write_text("user,item,time\n" + "".join(f"1,{n},{n}\n" for n in range(5)))
    dataset = prepare(source, tmp_path / "out")
    check_candidates(dataset, "sampled-9")
    with raises(SettingError, "candidates", "fixed", "validation", "--candidates fixed"):
        check_candidates(dataset, "fixed")

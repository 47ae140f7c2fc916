"""SLIST beside its formula in NumPy, and the effect of a history's order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from foretaste.models.linear import pairs, ridge, weights
from foretaste.models.linear.config import EaseConfig, SlistConfig
from foretaste.models.linear.ease import Ease
from foretaste.models.linear.slist import Slist
from foretaste.models.registry import build_model
from foretaste.ops.histories import HistoryTensors
from tests.models.linear.tables import neighbor_weights
from tests.ops.cases import histories_of

NUM_ITEMS = 15
RECENCY, WINDOW, ALPHA, L2 = 0.7, 4, 0.3, 5.0


@pytest.fixture
def sequences(rng: np.random.Generator) -> list[list[int]]:
    """Items of users, oldest first: none, one, a few, and more than the window holds."""
    lengths = [0, 1, 2, 3, *rng.integers(1, 12, 80).tolist()]
    return [rng.permutation(NUM_ITEMS - 1)[:length].tolist() for length in lengths]


def ordered(sequences: list[list[int]]) -> HistoryTensors:
    """Histories with places that have gaps."""
    position = [7 + 3 * place for row in sequences for place in np.argsort(row).tolist()]
    return replace(
        histories_of(sequences, NUM_ITEMS), position=torch.tensor(position, dtype=torch.int32)
    )


def source(items: list[int]) -> np.ndarray:
    row = np.zeros(NUM_ITEMS)
    for place, item in enumerate(reversed(items[-WINDOW:])):
        row[item] = (1 + place) ** -RECENCY
    return row


def plain_gram_and_targets(sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """G and A, with S and T written out."""
    steps = [(row[: t + 1], row[t + 1]) for row in sequences for t in range(len(row) - 1)]
    sources = np.array([source(before) for before, _ in steps])
    targets = np.eye(NUM_ITEMS)[[after for _, after in steps]]
    sets = np.array([np.eye(NUM_ITEMS)[row].sum(0) for row in sequences])
    shared = ALPHA * sets.T @ sets
    return sources.T @ sources + shared, sources.T @ targets + shared


def plain_weights(gram: np.ndarray, targets: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(gram + L2 * np.eye(NUM_ITEMS))
    product = inverse @ targets
    return product - inverse @ np.diag(np.diag(product) / np.diag(inverse))


def fitted(sequences: list[list[int]], neighbors: int | str = "all") -> Slist:
    config = SlistConfig(
        recency=RECENCY,
        window=WINDOW,
        set_weight=ALPHA,
        l2=L2,
        neighbors=neighbors,  # type: ignore[arg-type]
    )
    model = build_model("slist", config, len(sequences), NUM_ITEMS)
    assert isinstance(model, Slist)
    model.fit(ordered(sequences), lambda *how_far: None)
    return model


def scores_of(model: Slist | Ease, sequences: list[list[int]]) -> torch.Tensor:
    return model.score_catalogue(model.fold_in(ordered(sequences)))


def test_the_dense_form_is_the_formula(sequences: list[list[int]]) -> None:
    weights = plain_weights(*plain_gram_and_targets(sequences))
    model = fitted(sequences)
    assert np.abs(model.weight_II.numpy() - weights).max() < 1e-5
    rows = [row for row in sequences if row]
    expected = np.array([source(row) for row in rows]) @ weights
    assert np.abs(scores_of(model, rows).numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("neighbors", ["all", NUM_ITEMS - 1])
def test_the_newest_items_of_a_long_history_are_counted(
    neighbors: int | str, sequences: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted(sequences, neighbors)
    newest = [row[-4:] for row in sequences if row]
    scores = scores_of(fitted(newest, neighbors), newest)
    monkeypatch.setattr(ridge, "MOST_COUNTED", 4)
    model = fitted(sequences, neighbors)
    # Items without a weight follow by popularity, with scores of nearly zero.
    assert torch.allclose(scores_of(model, newest), scores, rtol=0, atol=1e-20)
    assert torch.equal(model.item_count_I, whole.item_count_I)
    monkeypatch.setattr(weights, "MOST_COUNTED", 4)
    num_long = sum(len(row) > 4 for row in sequences)
    note = f"; the 4 newest items of {num_long} users with more items are counted"
    assert model.fitting_note(ordered(sequences)).endswith(note)


@pytest.mark.parametrize("num_popular", [0, 5, NUM_ITEMS])
@pytest.mark.parametrize("num_neighbors", [1, 4, 9])
def test_neighbours_are_solved_for_among_themselves(
    num_neighbors: int,
    num_popular: int,
    sequences: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs, "MOST_POPULAR", num_popular)
    gram, targets = plain_gram_and_targets(sequences)
    expected = np.zeros_like(gram)
    for item in range(NUM_ITEMS):
        strength = targets[:, item] / np.sqrt(np.maximum(np.diag(gram), 1e-9))
        strength[item] = 0
        order = np.lexsort((np.arange(NUM_ITEMS), -strength.round(9)))[:num_neighbors]
        chosen = [other for other in order if strength[other] > 0]
        system = gram[np.ix_(chosen, chosen)] + L2 * np.eye(len(chosen))
        expected[chosen, item] = np.linalg.solve(system, targets[chosen, item])
    found = neighbor_weights(fitted(sequences), ordered(sequences), num_neighbors)
    assert np.abs(found - expected).max() < 1e-5
    rows = [row for row in sequences if row]
    model = fitted(sequences, num_neighbors)
    added = np.array([source(row) for row in rows]) @ expected
    scores = scores_of(model, rows).numpy()
    assert np.abs(scores - added)[added != 0].max() < 1e-5


def test_with_all_items_as_neighbours_it_is_the_dense_form(rng: np.random.Generator) -> None:
    """Every item came before every other item, so all are neighbours."""
    sequences = [rng.permutation(NUM_ITEMS).tolist() for _ in range(200)]
    assert (plain_gram_and_targets(sequences)[1] > 0).all()
    model = fitted(sequences)
    found = neighbor_weights(model, ordered(sequences), NUM_ITEMS - 1)
    assert np.abs(found - model.weight_II.numpy()).max() < 1e-5


@pytest.mark.parametrize("neighbors", ["all", 4])
def test_order_changes_scores_of_slist_and_not_of_ease(
    neighbors: int | str, sequences: list[list[int]]
) -> None:
    rows = [row for row in sequences if len(row) > 1]
    turned = [row[::-1] for row in rows]
    model = fitted(sequences, neighbors)
    assert (scores_of(model, rows) != scores_of(model, turned)).any(1).all()
    config = EaseConfig(neighbors=neighbors, l2=L2, dropout=0.0, user_power=0.0)  # type: ignore[arg-type]
    ease = Ease(config, len(rows), NUM_ITEMS)
    ease.fit(ordered(rows), lambda *how_far: None)
    assert torch.equal(scores_of(ease, rows), scores_of(ease, turned))


@pytest.mark.parametrize("neighbors", ["all", 4])
def test_answers_one_by_one_equal_answers_together(
    neighbors: int | str, sequences: list[list[int]]
) -> None:
    model = fitted(sequences, neighbors)
    together = scores_of(model, sequences)
    for row, expected in zip(sequences, together, strict=True):
        torch.testing.assert_close(scores_of(model, [row])[0], expected, rtol=1e-6, atol=1e-7)


def test_similar_items_are_those_that_follow() -> None:
    follow = [[item, (item + 1) % 5] for item in range(5) for _ in range(9)]
    similar = fitted(follow).similarity(torch.arange(5))
    assert similar.argmax(1).tolist() == [1, 2, 3, 4, 0]


def test_without_sets_only_steps_count(sequences: list[list[int]]) -> None:
    """A pair further apart than the window does not count."""
    entries = fitted(sequences).entries(ordered([[0, 1, 2, 3, 4, 5, 6]]))
    sets, sources, targets = pairs.count_tables(entries, lambda *how_far: None)
    assert (sets[:7, :7] == 1).all()
    assert [float(targets[5, item]) > 0 for item in range(7)] == [False, *[True] * 4, False, False]
    assert sources[0, 4] == 0
    assert sources[0, 3] > 0
    assert targets[1, 0] == 1, "the newest counts whole"
    assert sources[6].sum() == 0, "the last item is in no source"
    for before, after in pairwise(range(7)):
        assert targets[after, before] == 1


@pytest.mark.parametrize(("neighbors", "num_counts"), [("all", 2), (4, 3)])
def test_fits_of_a_search_share_the_counts(
    neighbors: int | str,
    num_counts: int,
    sequences: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fits share counts if they differ in l2 alone; with all pairs also if they differ in
    set_weight."""
    counted: list[str] = []
    for name in ("count_tables", "find_neighbors"):
        work = getattr(ridge, name)

        def watched(*given: Any, work: Any = work, **more: Any) -> Any:
            counted.append(work.__name__)
            return work(*given, **more)

        monkeypatch.setattr(ridge, name, watched)
    counts: dict[Any, Any] = {}
    base = {"recency": 0.7, "set_weight": 0.3, "l2": 5.0, "window": WINDOW, "neighbors": neighbors}
    for changed in ({}, {"l2": 9.0}, {"set_weight": 1.0}, {"recency": 0.5}):
        weights = []
        for shared in (counts, None):
            model = build_model("slist", SlistConfig(**base | changed), len(sequences), NUM_ITEMS)
            assert isinstance(model, Slist)
            model.counts = shared
            num_before = len(counted)
            model.fit(ordered(sequences), lambda *how_far: None)
            weights.append(model.state_dict())
            num_new = len(counted) - num_before
            num_counts -= num_new if shared is counts else 0
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert num_counts == 0

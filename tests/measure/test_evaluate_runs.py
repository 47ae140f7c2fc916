"""Runs are measured on their own datasets, compared on one dataset, and named below the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.distributed.collectives import ALONE, Ranks
from foretaste.errors import SettingError
from foretaste.evaluation import EvaluationConfig, compare_evaluations
from foretaste.evaluation.result import Difference
from foretaste.measure import Comparison, compare_runs, evaluate_run
from tests.measure.test_tables import evaluation
from tests.messages import raises
from tests.ranks import run_ranks
from tests.runs.tiny import make_run

FOUND = evaluation(hr_10=0.6, ndcg_10=0.3)


def test_a_notebook_shows_runs_and_their_differences() -> None:
    difference = Difference(name="hr@10", value=0.05, low=0.01, high=0.09)
    comparison = Comparison(
        evaluations={"<vae>": FOUND, "ease": FOUND},
        differences={"ease": {"hr@10": difference}},
        paths={},
        models={},
    )
    html = comparison._repr_html_()
    assert html.count("<table>") == 2
    assert "<td>0.6000 (0.5900–0.6100)</td>" in html
    assert "<td>+0.0500 * (+0.0100 to +0.0900)</td>" in html
    assert "<vae>" not in html


def shop(path: Path, first_item: int) -> Dataset:
    """A dataset with the same numbers of users, items and held-out pairs for any names of items."""
    pairs = [(user, first_item + (user * 3 + step) % 9) for user in range(30) for step in range(4)]
    users, items = zip(*pairs, strict=True)
    table = pa.table({"user_id": users, "item_id": items, "timestamp": range(len(pairs))})
    return prepare(table, path, PrepareConfig(protocol="leave-one-out"))


def test_numbers_of_different_datasets_do_not_compare(tmp_path: Path) -> None:
    """Numbers of different datasets do not compare, even if all counts of the evaluations agree."""
    found = []
    for first_item in (1, 2):
        dataset = shop(tmp_path / f"shop {first_item}", first_item)
        found.append(evaluate_run(make_run(tmp_path / f"run {first_item}", dataset), dataset))
    first, second = found
    assert first.user_index.tolist() == second.user_index.tolist()
    assert (first.protocol, first.candidates) == (second.protocol, second.candidates)
    with raises(SettingError, *(one.dataset_digest[:12] for one in found)):
        compare_evaluations(first, second)


def test_a_run_and_its_dataset_may_be_named_by_their_paths(tmp_path: Path) -> None:
    dataset = shop(tmp_path / "shop", 1)
    run = make_run(tmp_path / "run", dataset)
    expected = evaluate_run(run, dataset).metrics
    assert evaluate_run(str(run.path)).metrics == expected
    assert evaluate_run(run.path, str(dataset.path)).metrics == expected
    with raises(SettingError, "split", "train"):
        evaluate_run(run, split="train")  # type: ignore[arg-type]
    with raises(SettingError, "config", {"k": (5,)}, "EvaluationConfig"):
        evaluate_run(run, config={"k": (5,)})  # type: ignore[arg-type]


def test_settings_of_evaluation_may_be_given_by_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", shop(tmp_path / "shop", 1))
    by_config = evaluate_run(run, config=EvaluationConfig(candidates="sampled-3", k=(1, 2)))
    assert evaluate_run(run, candidates="sampled-3", k=[1, 2]).metrics == by_config.metrics
    assert list(evaluate_run(run, k=3).metrics) == list(evaluate_run(run, k=[3]).metrics)
    with raises(SettingError, "evaluate_run", "epochs", "TrainingConfig"):
        evaluate_run(run, epochs=3)


def compared(ranks: Ranks, paths: list[Path], other: Path) -> tuple[Any, ...]:
    measured = evaluate_run(paths[0]), evaluate_run(paths[1], other, k=3)
    differences = compare_runs(paths).differences
    return differences, [(found.metrics, found.matching) for found in measured]


def test_ranks_measure_and_compare_runs_as_one_process_does(tmp_path: Path) -> None:
    dataset, other = shop(tmp_path / "shop", 1), shop(tmp_path / "other", 3)
    paths = [make_run(tmp_path / name, dataset, name).path for name in ("popularity", "ease")]
    (differences, alone) = compared(ALONE, paths, other.path)
    first, second = run_ranks(compared, 2, paths, other.path)
    assert first == second
    assert first[0] == differences
    assert first[1] == alone

"""Final numbers of a run and the history of its epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretaste.data import Dataset
from foretaste.runs import MetricsLog, Run
from foretaste.runs.log import final_evaluation, history_of
from tests.training.trainings import run_of


def evaluation(split: str, epoch: int | None, value: float) -> dict[str, Any]:
    metric = {"name": "ndcg@10", "value": value, "low": value - 0.1, "high": value + 0.1}
    about = {"protocol": "leave-one-out", "candidates": "full", "matching": None, "elapsed_s": 0.1}
    counts = ("users", "users_without_target", "unseen_targets", "short_candidate_lists", "samples")
    found = about | {f"num_{name}": 5 for name in counts}
    found |= {"split": split, "metrics": {"ndcg@10": metric}}
    return {"event": "evaluation", "epoch": epoch, "evaluation": found}


def epoch(number: int, **numbers: float) -> dict[str, Any]:
    return {"event": "epoch", "epoch": number, "loss": 1 / number, "train_s": 2.0, **numbers}


def summary(best_epoch: int | None) -> dict[str, Any]:
    return {"event": "summary", "best_epoch": best_epoch}


def test_a_trained_run_has_its_final_numbers_and_epochs(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("vae", dataset, tmp_path / "run", epochs=3, eval_every=2)
    found = Run.open(run.path).metrics
    assert found is not None
    assert found.split == "test"
    metric = found.metrics["ndcg@100"]
    assert metric.low is not None
    assert metric.low <= found["ndcg@100"] == metric.value
    assert repr(found).startswith("test part, protocol held-out-users, candidates full, 12 users")
    logged = [event for event in run.log.read() if event["event"] == "evaluation"][-1]
    assert found.as_dict() == logged["evaluation"]

    history = run.history
    assert [entry["epoch"] for entry in history] == [1, 2, 3]
    assert all(entry["train_s"] > 0 and entry["samples_per_s"] > 0 for entry in history)
    evaluated = [number for number in (1, 2, 3) if "validation/ndcg@100" in history[number - 1]]
    assert evaluated == [2, 3]


@pytest.mark.parametrize(
    ("events", "value"),
    [
        ([], None),
        ([epoch(1), evaluation("validation", 1, 0.5)], None),
        ([epoch(1), summary(None)], None),
        ([evaluation("test", None, 0.3), summary(None)], 0.3),
        (
            [evaluation("validation", 1, 0.5), evaluation("validation", 2, 0.4), summary(1)],
            0.5,
        ),
        ([evaluation("validation", 1, 0.5), evaluation("test", 1, 0.2), summary(1)], 0.2),
        ([evaluation("test", 3, 0.2), summary(None)], 0.2),
    ],
)
def test_the_final_numbers_belong_to_the_saved_weights(
    events: list[dict[str, Any]], value: float | None
) -> None:
    found = final_evaluation(events)
    assert (found and found["ndcg@10"]) == value


def test_an_evaluation_joins_the_numbers_of_its_epoch() -> None:
    events = [epoch(1), epoch(2, beta=0.5), evaluation("validation", 2, 0.3), summary(2)]
    assert history_of(events) == [
        {"epoch": 1, "loss": 1.0, "train_s": 2.0},
        {"epoch": 2, "loss": 0.5, "train_s": 2.0, "beta": 0.5, "validation/ndcg@10": 0.3},
    ]


def test_a_run_of_one_pass_has_no_epochs(run: Run) -> None:
    assert run.metrics is None
    assert run.history == []


def test_a_run_in_training_has_the_epochs_so_far(run: Run) -> None:
    MetricsLog(run.log.path).append("epoch", epoch=1, loss=0.5)
    assert [entry["loss"] for entry in run.history] == [0.5]

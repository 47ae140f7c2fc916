"""What is said below runs side by side."""

from __future__ import annotations

from pathlib import Path

from foretaste.report import Comparison
from tests.report.test_tables import evaluation

FOUND = evaluation(hr_10=0.6, ndcg_10=0.3)


def notes(*labels: str) -> list[str]:
    comparison = Comparison(
        evaluations=dict.fromkeys(labels, FOUND),
        differences={},
        paths={label: Path("runs") / label for label in labels},
    )
    return comparison.notes(["ndcg@10"])


def test_runs_of_different_datasets_do_not_compare() -> None:
    lines = notes("vae", "ease")
    assert lines[:2] == ["vae: runs/vae", "ease: runs/ease"]
    assert "trained on different datasets" in lines[2]


def test_one_run_is_not_called_different() -> None:
    assert not any("different" in line for line in notes("vae"))


def test_only_the_metrics_shown_are_explained_and_once() -> None:
    lines = notes("vae", "ease")
    assert sum(line.startswith("ndcg@k: ") for line in lines) == 1
    assert not any(line.startswith("hr@k: ") for line in lines)

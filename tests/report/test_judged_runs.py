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


def test_the_run_behind_each_label_is_named() -> None:
    assert notes("vae", "ease")[:2] == ["vae: runs/vae", "ease: runs/ease"]


def test_only_the_metrics_shown_are_explained_and_once() -> None:
    lines = notes("vae", "ease")
    assert sum(line.startswith("ndcg@k: ") for line in lines) == 1
    assert not any(line.startswith("hr@k: ") for line in lines)

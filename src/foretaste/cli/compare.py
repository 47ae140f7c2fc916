"""``foretaste compare``: trained models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from foretaste.cli.console import counting
from foretaste.cli.metrics_output import MetricsFormat, print_metrics
from foretaste.errors import SettingError
from foretaste.evaluation.config import EvaluationConfig

if TYPE_CHECKING:
    from foretaste.report.judged_runs import Comparison


def compare(
    runs: list[Path],
    /,
    *,
    metrics: Annotated[list[str] | None, Parameter(name=("--metric", "-m"))] = None,
    candidates: str | None = None,
    split: Literal["test", "validation"] = "test",
    dataset: Path | None = None,
    device: str = "auto",
    format: MetricsFormat = "table",
) -> None:
    """Put trained models side by side, with how each differs from the first on the same users.

    Args:
        runs: Directories of two or more runs; the others are held against the first.
        metrics: What to show, such as ndcg@10; give it again for more. Otherwise hr@10, ndcg@10,
            recall@20 and ndcg@100.
        candidates: What held-out items are ranked against: full (the default), sampled-N or
            nvidia-N.
        split: Which held-out part to measure on.
        dataset: Where the dataset of all the runs is now, if it is not where it was.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        format: How to print; csv and json hold every number.
    """
    from foretaste.report.judged_runs import compare_runs
    from foretaste.report.tables import HEADLINE
    from foretaste.runs import Run

    if len(runs) < 2:
        raise SettingError(f"compare needs two runs or more, got {len(runs)}")
    shown = tuple(metrics or HEADLINE)
    with counting(f"Ranking {split}") as tell:
        comparison = compare_runs(
            [Run.open(run) for run in runs],
            _config(shown, candidates),
            split=split,
            dataset_path=dataset,
            device=device,
            progress=tell,
        )
    _print(comparison, shown, format)


def _config(metrics: tuple[str, ...], candidates: str | None) -> EvaluationConfig:
    from foretaste.evaluation.definitions import parse_metric

    lengths = tuple(parse_metric(name)[1] for name in metrics)
    if candidates is None:
        return EvaluationConfig(k=lengths)
    return EvaluationConfig(k=lengths, candidates=candidates)


def _print(comparison: Comparison, metrics: tuple[str, ...], format: MetricsFormat) -> None:
    from foretaste.report.tables import comparison_grid, difference_grid

    grids = [("", comparison_grid(comparison.evaluations, metrics))]
    if comparison.differences:
        first = next(iter(comparison.evaluations))
        heading = f"Difference to {first} on the same users (* where the interval leaves out 0):"
        grids.append((heading, difference_grid(comparison.differences, metrics)))
    print_metrics(comparison.evaluations, grids, comparison.notes(metrics), format)

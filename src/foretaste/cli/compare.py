"""``foretaste compare``: trained models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, note_if_unfinished
from foretaste.cli.metrics_output import DEFINED_ELSEWHERE, MetricsFormat, print_metrics
from foretaste.errors import SettingError
from foretaste.evaluation.config import EvaluationConfig
from foretaste.evaluation.definitions import canonical_metrics, lengths_of
from foretaste.report.tables import HEADLINE, Grid, comparison_grid, difference_grid

if TYPE_CHECKING:
    from foretaste.report import Comparison


def compare(
    runs: list[Path],
    /,
    *,
    metrics: Annotated[tuple[str, ...], Parameter(name=("--metric", "-m"))] = HEADLINE,
    candidates: str | None = None,
    split: Literal["test", "validation"] = "test",
    dataset: Path | None = None,
    device: str = "auto",
    format: MetricsFormat = "table",
    definitions: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Put trained models side by side, with how each differs from the first on the same users.

    Args:
        runs: Directories of two or more runs; the others are held against the first.
        metrics: What to show: --metric ndcg@10 hr@10.
        candidates: What held-out items are ranked against: full (the default), sampled-N,
            nvidia-N or fixed.
        split: Which held-out part to measure on.
        dataset: Data to measure the runs on: where their dataset is now, or another, whose users
            and items are matched by id. Needed where they were trained on different ones.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        format: How to print; csv and json hold every number.
        definitions: Print the definition of each metric below the tables.
        quiet: Print the tables and nothing else: no progress, definitions or notes.
    """
    from foretaste.report import compare_runs
    from foretaste.runs import Run

    if len(runs) < 2:
        raise SettingError(f"compare needs two runs or more, got {len(runs)}")
    metrics = canonical_metrics(metrics)
    opened = [Run.open(run) for run in runs]
    with counting(f"Ranking {split}", quiet=quiet) as tell:
        comparison = compare_runs(
            opened,
            _config(metrics, candidates),
            split=split,
            dataset=dataset,
            device=device,
            progress=tell,
        )
    for each in opened:
        note_if_unfinished(each, quiet=quiet)
    notes = comparison.notes(metrics if definitions else None)
    if not definitions:
        notes.append(DEFINED_ELSEWHERE)
    grids = _grids(comparison, metrics)
    print_metrics(comparison.rows(), grids, [] if quiet else notes, format)


def _config(metrics: tuple[str, ...], candidates: str | None) -> EvaluationConfig:
    lengths = lengths_of(metrics)
    if candidates is None:
        return EvaluationConfig(k=lengths)
    return EvaluationConfig(k=lengths, candidates=candidates)


def _grids(comparison: Comparison, metrics: tuple[str, ...]) -> list[tuple[str, Grid]]:
    first = next(iter(comparison.evaluations))
    heading = f"Difference to {first} on the same users (* where the interval leaves out 0):"
    return [
        ("", comparison_grid(comparison.evaluations, metrics)),
        (heading, difference_grid(comparison.differences, metrics)),
    ]

"""``foretaste report``: one file with the metrics and plots of trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from foretaste._util.terminal import print_data
from foretaste.cli.arguments import FLAG, given_settings, unset
from foretaste.cli.console import note_if_unfinished, say, stdout_console
from foretaste.cli.measuring import MeasureOptions, Measuring
from foretaste.evaluation.config import EvaluationConfig
from foretaste.measure.tables import HEADLINE

# A report always measures more.
_Evaluation: Any = unset(EvaluationConfig, without=("k", "evaluation_batch", "more"))


def report(
    runs: list[Path],
    /,
    *,
    output: Path = Path("report.html"),
    metrics: Annotated[tuple[str, ...], Parameter(alias="-m")] = HEADLINE,
    num_people: int = 20,
    config: Annotated[_Evaluation | None, Parameter(name="*")] = None,
    measuring: Measuring = None,
    overwrite: Annotated[bool, FLAG] = False,
) -> None:
    """Measure trained models and write a report on them.

    Args:
        runs: Directories of runs; the first is the baseline of the differences.
        output: File to write, an .html file that opens offline.
        metrics: Metrics of the tables: --metrics ndcg@10 hr@10.
        num_people: Number of held-out users, chosen by hash, who are shown with their lists.
        overwrite: Replace an existing report.
    """
    from foretaste.report.contents import check_output, report_measured
    from foretaste.runs import Run

    measuring = measuring or MeasureOptions()
    check_output(output, overwrite=overwrite)
    request = measuring.request(EvaluationConfig(**given_settings(config)))
    opened = [Run.open(run) for run in runs]
    with measuring.counting() as progress:
        made = report_measured(
            opened, request, metrics=metrics, num_people=num_people, progress=progress
        )
    for run in opened:
        note_if_unfinished(run, quiet=measuring.quiet)
    made.write(output, overwrite=overwrite)
    if measuring.quiet:
        print_data(str(output))
    else:
        say(stdout_console(), f"Report: {output}")

"""``foretaste report``: one file with the metrics and plots of trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from foretaste._util.terminal import print_data
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, note_if_unfinished, say, stdout_console
from foretaste.evaluation.config import EvaluationConfig
from foretaste.report.tables import HEADLINE


def report(
    runs: list[Path],
    /,
    *,
    output: Path = Path("report.html"),
    metrics: Annotated[tuple[str, ...], Parameter(alias="-m")] = HEADLINE,
    num_people: int = 20,
    candidates: str = EvaluationConfig.candidates,
    history_lengths: tuple[int, ...] | None = None,
    split: Literal["test", "validation"] = "test",
    dataset: Path | None = None,
    device: str = "auto",
    overwrite: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Measure trained models and write a report on them.

    Args:
        runs: Directories of runs; the first is the baseline of the differences.
        output: File to write, an .html file that opens offline.
        metrics: Metrics of the tables: --metrics ndcg@10 hr@10.
        num_people: Number of held-out users, chosen by hash, who are shown with their lists.
        candidates: Items against which held-out items are ranked: full, new (held-out items that
            training never saw), sampled-N, nvidia-N or fixed.
        history_lengths: Numbers of history items with which users unseen in training are measured.
            Default: 1 2 5 10 20 50 if the protocol holds out such users.
        split: Held-out part to measure on.
        dataset: Dataset to measure on: the present directory of the runs' own, or another dataset.
            Users and items are matched by id. Needed for runs of different datasets.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        overwrite: Replace an existing report.
        quiet: Print the path of the report and nothing else.
    """
    from foretaste.report.contents import checked_output, report_runs
    from foretaste.runs import Run

    checked_output(output, overwrite=overwrite)
    config = EvaluationConfig(candidates=candidates, history_lengths=history_lengths)
    opened = [Run.open(run) for run in runs]
    with counting(f"Ranking {split}", quiet=quiet) as progress:
        made = report_runs(
            opened,
            config,
            metrics=metrics,
            num_people=num_people,
            split=split,
            dataset=dataset,
            device=device,
            progress=progress,
        )
    for run in opened:
        note_if_unfinished(run, quiet=quiet)
    made.write(output, overwrite=overwrite)
    if quiet:
        print_data(str(output))
    else:
        say(stdout_console(), f"Report: {output}")

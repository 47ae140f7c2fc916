"""``foretaste report``: trained models measured, in one file to read and to send on."""

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
        runs: Directories of one run or more; the others are held against the first.
        output: File to write. The ending is the format: .html is all in one file and opens offline,
            .md has its plots in a folder beside it.
        metrics: What the tables show: --metrics ndcg@10 hr@10.
        num_people: Number of held-out people, chosen by hash, who are shown with their lists.
        candidates: What held-out items are ranked against: full, sampled-N, nvidia-N or fixed.
        history_lengths: Numbers of items that users unseen in training are measured with; 1 2 5 10
            20 50 unless given, where the protocol holds out such users.
        split: Which held-out part to measure on.
        dataset: Data to measure the runs on: where their dataset is now, or another, whose users
            and items are matched by id. Needed where they were trained on different ones.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        overwrite: Replace a report that is there already.
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

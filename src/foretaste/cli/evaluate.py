"""``foretaste evaluate``: a trained model measured again, by other candidates or list lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, note_if_unfinished
from foretaste.cli.metrics_output import MetricsFormat, print_metrics
from foretaste.evaluation.config import EvaluationConfig
from foretaste.report.tables import evaluation_grid, metric_rows


def evaluate(
    run: Path,
    /,
    *,
    config: Annotated[EvaluationConfig | None, Parameter(name="*", group="Metrics")] = None,
    split: Literal["test", "validation"] = "test",
    dataset: Path | None = None,
    device: str = "auto",
    format: MetricsFormat = "table",
    log_path: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
) -> None:
    """Measure a trained model on the held-out part of its dataset, or of another.

    Args:
        run: Directory of the run.
        split: Which held-out part to measure on.
        dataset: Data to measure the run on: where its dataset is now, or another, whose users and
            items are matched by id.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        format: How to print: csv and json hold every number.
        log_path: Write the numbers to this file too, as the metrics.jsonl of a run has them. Its
            folder is made.
        overwrite: Replace a log that is there already.
    """
    from foretaste.report import evaluate_run
    from foretaste.report.judged_runs import dataset_for
    from foretaste.runs import Run
    from foretaste.runs.copies import check_log_path, write_log

    if log_path is not None:
        check_log_path(log_path, overwrite=overwrite)
    opened = Run.open(run)
    data = dataset_for(opened, dataset)
    with counting(f"Ranking {split}") as tell:
        found = evaluate_run(opened, data, config, split=split, device=device, progress=tell)
    note_if_unfinished(opened)
    model = opened.config.model
    grids = [(f"{model} on {data.path}", evaluation_grid(found))]
    notes = [*found.definitions(), found.speed()]
    print_metrics(metric_rows(run, model, found), grids, notes, format)
    if log_path is not None:
        write_log(log_path, found.as_dict())

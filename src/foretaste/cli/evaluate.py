"""``foretaste evaluate``: a trained model measured again, by other candidates or list lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG, given_settings
from foretaste.cli.console import counting, note_if_unfinished
from foretaste.cli.metrics_output import MetricsFormat, print_metrics
from foretaste.errors import SettingError
from foretaste.evaluation.config import EvaluationConfig
from foretaste.evaluation.definitions import canonical_metrics, lengths_of
from foretaste.report.tables import comparison_grid, evaluation_grid, metric_rows


def evaluate(
    run: Path,
    /,
    *,
    config: Annotated[EvaluationConfig | None, Parameter(name="*", group="Metrics")] = None,
    metrics: Annotated[tuple[str, ...], Parameter(name=("--metric", "-m"), group="Metrics")] = (),
    split: Literal["test", "validation"] = "test",
    dataset: Path | None = None,
    device: str = "auto",
    format: MetricsFormat = "table",
    log_path: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Measure a trained model on the held-out part of its dataset, or of another.

    Args:
        run: Directory of the run.
        metrics: What to show, in place of every metric at the lengths of --k: --metric ndcg@10
            hr@10.
        split: Which held-out part to measure on.
        dataset: Data to measure the run on: where its dataset is now, or another, whose users and
            items are matched by id.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        format: How to print: csv and json hold every number.
        log_path: Write the numbers to this file too, as the metrics.jsonl of a run has them. Its
            folder is made.
        overwrite: Replace a log that is there already.
        quiet: Print the numbers and nothing else: no progress, definitions or notes.
    """
    from foretaste.report import evaluate_run
    from foretaste.report.judged_runs import dataset_for
    from foretaste.runs import Run
    from foretaste.runs.log_copies import check_log_path, write_log

    if log_path is not None:
        check_log_path(log_path, overwrite=overwrite)
    config, metrics = _asked(config, metrics)
    opened = Run.open(run)
    data = dataset_for(opened, dataset)
    with counting(f"Ranking {split}", quiet=quiet) as tell:
        found = evaluate_run(opened, data, config, split=split, device=device, progress=tell)
    note_if_unfinished(opened, quiet=quiet)
    name, model = opened.path.resolve().name, opened.config.model
    grid = comparison_grid({name: found}, metrics) if metrics else evaluation_grid(found)
    heading = "" if quiet else f"{name}: {model} on {data.path}"
    notes = [] if quiet else [*found.definitions(metrics or None), found.speed()]
    print_metrics(metric_rows(run, name, found), [(heading, grid)], notes, format)
    if log_path is not None:
        write_log(log_path, found.as_dict())


def _asked(
    config: EvaluationConfig | None, metrics: tuple[str, ...]
) -> tuple[EvaluationConfig, tuple[str, ...]]:
    """What to measure, and the metrics to show of it; all of them where none are named."""
    config = config or EvaluationConfig()
    if not metrics:
        return config, metrics
    if "k" in given_settings(config):
        raise SettingError("--metric and --k both say how long lists are; leave out one of them")
    metrics = canonical_metrics(metrics)
    return replace(config, k=lengths_of(metrics)), metrics

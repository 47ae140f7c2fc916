"""``foretaste evaluate`` and ``compare``: metrics of trained models, alone or side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from foretaste._util.system import launch
from foretaste._util.terminal import print_error
from foretaste.cli.arguments import FLAG, given_settings, unset
from foretaste.cli.console import MetricsFormat, note_if_unfinished, print_metrics
from foretaste.cli.measuring import MeasureOptions, Measuring
from foretaste.errors import NothingLeftError, SettingError
from foretaste.evaluation.config import (
    LIST_METRICS,
    OF_LISTS,
    EvaluationConfig,
    canonical_metrics,
    default_metric,
    lengths_of,
    measures_lists,
    metric_name,
    parse_metric,
)
from foretaste.measure.tables import (
    HEADLINE,
    comparison_grid,
    difference_grid,
    evaluation_grid,
    group_grids,
    metric_rows,
    shown_metrics,
    with_new_items,
)

_Evaluation: Any = unset(EvaluationConfig)
# --metrics has the lengths.
_Comparison: Any = unset(EvaluationConfig, without=("k", "evaluation_batch"))


def evaluate(
    run: Path,
    /,
    *,
    config: Annotated[_Evaluation | None, Parameter(name="*", group="Metrics")] = None,
    metrics: Annotated[tuple[str, ...], Parameter(alias="-m", group="Metrics")] = (),
    measuring: Measuring = None,
    format: MetricsFormat = "table",
    log_path: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
) -> None:
    """Measure a trained model on the held-out part of its dataset, or of another.

    Args:
        run: Directory of the run.
        metrics: Metrics to show, --metrics ndcg@10 hr@10; by default all metrics at the lengths of
            --k.
        format: Format of the printed metrics; csv and json have all numbers.
        log_path: Also write the metrics to this file, in the format of a run's metrics.jsonl. Its
            folder is created.
        overwrite: Replace an existing log.
    """
    from foretaste.measure.evaluate_runs import dataset_of_runs, measure_run
    from foretaste.runs import Run

    measuring = measuring or MeasureOptions()
    if log_path is not None:
        from foretaste.training.logs import check_log_path

        check_log_path(log_path, overwrite=overwrite)
    given = given_settings(config)
    settings = EvaluationConfig(**given)
    if metrics:
        if "k" in given:
            raise SettingError(
                "--metrics and --k both give the length of lists; leave out one of them"
            )
        metrics = canonical_metrics(metrics)
        more = settings.more or measures_lists(metrics)
        settings = replace(settings, k=lengths_of(metrics), more=more)
    opened, request = Run.open(run), measuring.request(settings)
    data = dataset_of_runs([opened], request.dataset)
    with measuring.counting() as progress:
        found = measure_run(opened, replace(request, dataset=data), progress)
    note_if_unfinished(opened, quiet=measuring.quiet)
    name, model = opened.path.resolve().name, opened.config.model
    shown = with_new_items(metrics, [found])
    grid = comparison_grid({name: found}, shown) if shown else evaluation_grid(found)
    heading = "" if measuring.quiet else f"{name}: {model} on {data.path}"
    grids = [(heading, grid), *group_grids({name: found}, metrics or HEADLINE)]
    notes = [] if measuring.quiet else [*found.definitions(metrics or None), found.speed()]
    print_metrics(metric_rows(run, name, found), grids, notes, format)
    if log_path is not None and launch().rank == 0:
        from foretaste.training.logs import write_log

        write_log(log_path, found.as_dict())


def compare(
    runs: list[Path],
    /,
    *,
    metrics: Annotated[tuple[str, ...], Parameter(alias="-m")] = HEADLINE,
    config: Annotated[_Comparison | None, Parameter(name="*")] = None,
    measuring: Measuring = None,
    gate: Annotated[bool, FLAG] = False,
    format: MetricsFormat = "table",
) -> None:
    """Compare trained models, with the difference of each to the first on the same users.

    Args:
        runs: Directories of two or more runs; the first is the baseline of the differences.
        metrics: Metrics to show: --metrics ndcg@10 hr@10.
        gate: End in an error if the last run is clearly worse than the first, by the metric that
            chooses, such as ndcg@10; if that is not shown, by the first of held-out items. Pairs
            that a run was trained on are left out; if none is left, nothing is decided.
        format: Format of the printed tables; csv and json have all numbers.
    """
    from foretaste.measure.evaluate_runs import compare_measured, dataset_of_runs
    from foretaste.runs import Run

    measuring = measuring or MeasureOptions()
    if len(runs) < 2:
        raise SettingError(
            f"compare needs two runs or more, got {len(runs)}; runs go before the options"
        )
    metrics = canonical_metrics(metrics)
    opened = [Run.open(run) for run in runs]
    data = dataset_of_runs(opened, measuring.dataset)
    metrics = shown_metrics(metrics, data.manifest.protocol)
    held_out = [name for name in metrics if parse_metric(name)[0] not in OF_LISTS]
    if gate and not held_out:
        raise SettingError(
            f"--gate needs a metric of held-out items, and there is none in {', '.join(metrics)}; "
            "show one, such as --metrics ndcg@10"
        )
    asked = EvaluationConfig(**given_settings(config))
    settings = replace(asked, k=lengths_of(metrics), more=asked.more or measures_lists(metrics))
    request = replace(measuring.request(settings), dataset=data)
    with measuring.counting() as progress:
        comparison = compare_measured(opened, request, progress)
    if comparison.nothing_left:
        if not gate:
            raise NothingLeftError(comparison.nothing_left)
        if not measuring.quiet:
            print_error(comparison.check_not_worse(held_out[0]))
        return
    for each in opened:
        note_if_unfinished(each, quiet=measuring.quiet)
    first = next(iter(comparison.evaluations))
    heading = f"Difference to {first} on the same users (* if the interval leaves out 0):"
    of_lists = [metric_name(kind, min(settings.k)) for kind in LIST_METRICS] if asked.more else []
    grids = group_grids(comparison.evaluations, metrics)
    for names in filter(None, (of_lists, with_new_items(metrics, comparison.evaluations.values()))):
        grids = [
            ("", comparison_grid(comparison.evaluations, names)),
            (heading, difference_grid(comparison.differences, names)),
            *grids,
        ]
    print_metrics(comparison.rows(), grids, [] if measuring.quiet else comparison.notes(), format)
    if gate:
        usual = default_metric(comparison.evaluations[first].protocol)
        verdict = comparison.check_not_worse(usual if usual in held_out else held_out[0])
        if not measuring.quiet:
            print_error(verdict)

"""``foretaste compete``: models trained on one dataset, in one table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG, given_settings, unset
from foretaste.cli.console import (
    MetricsFormat,
    counting,
    print_metrics,
    say,
    say_next,
    stdout_console,
)
from foretaste.cli.train_options import (
    MORE,
    RawOptions,
    Source,
    in_groups,
    train_on_everything,
)
from foretaste.measure.tables import HEADLINE
from foretaste.models.registry import MODEL_NAMES
from foretaste.training.config import TrainingConfig

_OF_EVERY_MODEL = (
    *("epochs", "seed", "device", "search", "select_by", "candidates"),
    *("validation_users", "evaluation_batch", "checkpoint_every_s"),
)
"""The settings of a training that all models take."""

_Training: Any = unset(in_groups(TrainingConfig, _OF_EVERY_MODEL.__contains__))


def compete(
    *dataset: Source,
    models: tuple[str, ...] = (*MODEL_NAMES, "blend"),
    tune: int = 0,
    metrics: Annotated[tuple[str, ...], Parameter(alias="-m")] = HEADLINE,
    output: Path | None = None,
    config: Annotated[_Training | None, Parameter(name="*", group=MORE)] = None,
    threads: int | None = None,
    raw: RawOptions = None,
    format: MetricsFormat = "table",
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Train models on a dataset, one after another, and rank them.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
        models: Models to train: --models ease vae. With blend the last row is a blend of the models
            by which validation gains.
        tune: Trials of a search for the settings of each model, as in foretaste tune.
        metrics: Metrics to show besides the one that ranks the models: --metrics ndcg@10 hr@10.
        output: Directory of the runs, and of the table as table.md, table.csv and table.json; by
            default competitions/NAME. The same command skips trainings that are finished there.
        threads: CPU threads of each rank; by default PyTorch's number.
        format: Format of the printed table; csv and json have all numbers.
        quiet: Print the table and nothing else: no progress and no notes.
    """
    shown: list[Callable[[int, int], None]] = []

    from foretaste.training import Callback
    from foretaste.tune.competition import CompeteRequest, train_and_rank

    request = CompeteRequest.of(
        dataset,
        models=models,
        tune=tune,
        metrics=metrics,
        output=output,
        threads=threads,
        **given_settings(config),
        **given_settings(raw),
    )

    with ExitStack() as bars:

        def progress(num_done: int, num_users: int) -> None:
            # The bar begins after the trainings, which have their own bars.
            if not shown:
                shown.append(bars.enter_context(counting("Ranking test", quiet=quiet)))
            shown[0](num_done, num_users)

        board = train_and_rank(request, Callback() if quiet else None, progress)
    print_metrics(board.rows(), [("", board.grid())], [] if quiet else board.notes(), format)
    if format == "table" and not quiet and board.best.run is not None:
        console = stdout_console()
        say(console)
        runs = [one.run for one in board.entries if one.run]
        verb = "compare" if len(runs) > 1 else "evaluate"
        on_everything = train_on_everything(board.best.run, request.data)
        say_next(console, ("foretaste", verb, *runs), *on_everything)

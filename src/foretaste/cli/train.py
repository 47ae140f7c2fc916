"""``foretaste train``: one command for each model, ``--like`` and ``--resume``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App

from foretaste._util.process import launch
from foretaste._util.terminal import print_data
from foretaste.cli.arguments import FLAG, given_settings, use_threads
from foretaste.cli.console import (
    say,
    say_next,
    stdout_console,
)
from foretaste.cli.other_models import add_commands
from foretaste.cli.train_options import (
    LogOptions,
    Logs,
    NewRun,
    RawData,
    RawOptions,
    RunOptions,
    Source,
    StartFrom,
    Threads,
    are_prepared,
    options_of,
)
from foretaste.models.registry import MODELS, config_class
from foretaste.training.config import PretrainingConfig, TrainingConfig

if TYPE_CHECKING:
    from foretaste.data import Dataset
    from foretaste.runs import Run
    from foretaste.training.display import TrainingDisplay

train = App(name="train")


def command_for(model: str) -> Callable[..., None]:
    """The command that trains a model, with the options that act for it."""

    def command(
        *dataset: Source,
        model_config: Any = None,
        config: Any = None,
        start_from: StartFrom = None,
        pretraining: PretrainingConfig | None = None,
        raw: RawOptions = None,
        place: RunOptions = None,
        logs: LogOptions = None,
        threads: Threads = None,
    ) -> None:
        """Train a model.

        Args:
            dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
            start_from: Run of the same model whose weights the training begins with. Its model
                settings are the defaults. Users and items are matched by id; new ones begin with
                random weights.
            threads: CPU threads of each rank; by default those of PyTorch.
        """
        settings = given_settings(model_config)
        config_class(model)(**settings)  # raises SettingError before data are prepared
        use_threads(threads)
        _train(
            model,
            dataset,
            raw,
            place,
            logs,
            config=TrainingConfig(**given_settings(config)),
            start_from=start_from,
            pretraining=pretraining,
            **settings,
        )

    command.__annotations__ |= options_of(config_class(model))
    return command


def rerun(
    run: Path,
    /,
    *dataset: Source,
    start_from: StartFrom = None,
    raw: RawOptions = None,
    place: RunOptions = None,
    logs: LogOptions = None,
    threads: Threads = None,
) -> None:
    """RUN DATASET: repeat the settings of a run.

    The model is trained for the number of the run's best epoch, and its last epoch is kept. Raw
    files are prepared with protocol none by default, so all interactions train. With `--from RUN`
    the training begins with the run's weights.

    Args:
        run: Directory of the run whose settings are repeated.
        start_from: Run of the same model whose weights the training begins with, such as the run
            itself. By default the weights begin as those of the run did.
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
        threads: CPU threads of each rank; by default those of PyTorch.
    """
    use_threads(threads)

    from foretaste.runs import Run

    opened = Run.open(run)

    from foretaste.training.auto import rerun_settings

    settings = rerun_settings(opened)
    if start_from is not None:
        settings |= {"start_from": start_from, "pretraining": None}
    raw = raw or RawData()
    if not are_prepared(dataset):
        from foretaste.data.config import InputConfig
        from foretaste.data.ids import features_of, with_id_types_of

        ids = with_id_types_of(run, InputConfig())
        # A model without features needs no file of items.
        takes_features = raw.items is not None or settings["needs_features"]
        raw = replace(
            raw,
            protocol=raw.protocol or "none",
            user_id_type=ids.user_id_type,
            item_id_type=ids.item_id_type,
            features=raw.features or (features_of(run) if takes_features else None),
        )
    _train(settings.pop("model"), dataset, raw, place, logs, **settings)


def resume(
    run: Path,
    /,
    *,
    dataset: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    logs: LogOptions = None,
    threads: Threads = None,
) -> None:
    """RUN: resume a training that was interrupted or killed.

    Its state is saved every minute and after Ctrl-C. Weights and metrics become those of a training
    that never stopped. The settings are those of its start.

    Args:
        run: Directory of the run.
        dataset: Present directory of the run's dataset, if it was moved.
        overwrite: Replace existing files of --log-path and --results-dir.
        threads: CPU threads of each rank; by default those of PyTorch.
    """
    use_threads(threads)

    from foretaste.runs import Run

    logs = logs or Logs()
    opened = Run.open(run)

    from foretaste import training
    from foretaste.training.auto import asked_settings

    with displayed(asked_settings(opened), logs) as display:
        resumed = training.resume(
            opened,
            dataset=dataset,
            overwrite=overwrite,
            logs=logs.config(),
            callback=display,
        )
    print_run(resumed, logs)


for position, name in enumerate(MODELS):
    train.command(command_for(name), name=name, help=config_class(name).__doc__, sort_key=position)
add_commands(train, "train", sort_key=len(MODELS))
train.command(rerun, name="--like", sort_key=len(MODELS) + 1)
train.command(resume, name="--resume", sort_key=len(MODELS) + 2)


def _train(
    model: str,
    sources: Sequence[str],
    raw: RawData | None,
    place: NewRun | None,
    logs: Logs | None,
    *,
    config: TrainingConfig | None,
    start_from: Path | str | None = None,
    pretraining: PretrainingConfig | None = None,
    **settings: Any,
) -> None:
    """Train ``model`` on the data at ``sources`` with a display, then print the run's directory."""
    logs, place = logs or Logs(), place or NewRun()

    # A misspelled name is an error before torch is imported, which takes 1.1 s.
    from foretaste.runs import Run
    from foretaste.runs.places import check_is_new

    if place.run is not None and not place.overwrite and Run.unfinished(place.run) is None:
        check_is_new(place.run)
    start = None if start_from is None else Run.open(start_from)
    halves = (pretraining.pretrained_gmf, pretraining.pretrained_mlp) if pretraining else ()
    for path in halves:
        if path is not None:
            Run.open(path)
    raw = raw or RawData()
    dataset = _opened(raw, sources, quiet=logs.quiet)

    from foretaste import training

    console = stdout_console(quiet=logs.quiet)
    raw.say_prepared(console, sources, dataset)
    with displayed(config or TrainingConfig(), logs) as display:
        run = training.train(
            model,
            dataset,
            config=config,
            start_from=start,
            pretraining=pretraining,
            run=place.run,
            overwrite=place.overwrite,
            logs=logs.config(),
            callback=display,
            **settings,
        )
    print_run(run, logs)


def _opened(raw: RawData, sources: Sequence[str], *, quiet: bool) -> Dataset:
    """The dataset of ``sources``; of several ranks, only the first prepares raw files."""
    if launch().size == 1 or are_prepared(sources):
        return raw.open(sources, quiet=quiet)
    from foretaste.data import open_dataset
    from foretaste.training.strategy import strategy_here

    with strategy_here() as strategy:
        return strategy.opened(lambda: raw.open(sources, quiet=quiet), open_dataset)


@contextmanager
def displayed(config: TrainingConfig, logs: Logs) -> Iterator[TrainingDisplay]:
    """Yield the display of a training; print the final metrics at the end."""
    from foretaste.evaluation.config import EvaluationConfig, parse_metric
    from foretaste.report.tables import evaluation_grid
    from foretaste.training.display import TrainingDisplay

    console = stdout_console(quiet=logs.quiet)
    with TrainingDisplay(console, config, verbose=logs.verbose) as display:
        try:
            yield display
        finally:
            summary = display.summary
            if summary is not None and (test := summary.test) is not None:
                # Also at the list length of the metric that chose the epoch.
                selected = summary.select_by
                chosen = () if selected is None else (parse_metric(selected)[1],)
                console.print(evaluation_grid(test, EvaluationConfig().k + chosen).to_rich())
                for line in test.conditions():
                    say(console, line, "dim", folded=True)


def print_run(run: Run, logs: Logs) -> None:
    """Print the run's directory and the next commands."""
    import numpy as np

    console = stdout_console()
    if logs.quiet:
        print_data(str(run.path))
        return
    say(console)
    say(console, f"Run: {run.path}")
    if logs.trace:
        from foretaste.training.profiler import TRACE

        say(console, f"Trace: {run.path / TRACE} (open it at ui.perfetto.dev)")
    (user_id,) = run.users.ids(np.arange(1))
    item_ids = run.items.ids(np.arange(min(2, run.num_items)))
    commands: list[tuple[object, ...]] = [
        ("foretaste", "recommend", run.path, "--user", user_id),
        ("foretaste", "recommend", run.path, "--history", *item_ids),
    ]
    if run.config.dataset.protocol != "none":
        commands.append(("foretaste", "compare", run.path, "OTHER_RUN"))
    say_next(console, *commands)

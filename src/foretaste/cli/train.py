"""``foretaste train``: one command for each model, ``--like`` and ``--resume``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from foretaste._util.terminal import print_data
from foretaste.cli.arguments import FLAG, given_settings
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
    RawOptions,
    RerunOptions,
    RunOptions,
    Source,
    options_of,
)
from foretaste.models.config import ModelConfig
from foretaste.models.registry import MODELS, config_class
from foretaste.training.config import PretrainingConfig, TrainingConfig

if TYPE_CHECKING:
    from foretaste.runs import Run
    from foretaste.training.display import TrainingDisplay

train = App(name="train")


def command_for(model: str) -> Callable[..., None]:
    """Return the command that trains a model, with the options that act for it."""

    def command(
        *dataset: Source,
        config: TrainingConfig | None = None,
        model_config: ModelConfig | None = None,
        place: RunOptions = None,
        pretraining: PretrainingConfig | None = None,
        raw: RawOptions = None,
    ) -> None:
        """Train a model.

        Args:
            dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
        """
        from foretaste.training.request import TrainRequest

        place = place or NewRun()
        request = TrainRequest.of(
            model,
            dataset,
            **given_settings(model_config),
            **given_settings(config),
            **given_settings(raw),
            **place.settings(),
            pretraining=pretraining,
        )
        request.check_names()  # before torch is imported, which takes 1.1 s

        from foretaste.training.api import train_run

        with display_training(request.config, place) as display:
            run = train_run(request, display)
        print_run(run, place)

    command.__annotations__ |= options_of(config_class(model))
    return command


def rerun(
    run: Path, /, *dataset: Source, raw: RawOptions = None, place: RerunOptions = None
) -> None:
    """RUN DATASET: repeat the settings of a run.

    The model is trained for the number of the run's best epoch, and its last epoch is kept. Raw
    files are prepared with protocol none by default, so all interactions train. With `--from RUN`
    the training begins with the run's weights.

    Args:
        run: Directory of the run whose settings are repeated.
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    from foretaste.data.like import Like
    from foretaste.data.request import PrepareRequest
    from foretaste.runs import Run
    from foretaste.training.request import rerun_request

    request, place = rerun_request(Run.open(run)), place or NewRun()
    if place.start_from is not None:
        request = replace(request, pretraining=None)
    data = PrepareRequest.of(dataset, **given_settings(raw))
    if not data.is_prepared:
        has_items = data.items is not None
        # A model without features needs no file of items.
        takes_features = has_items or bool(request.needs_features)
        like = Like.of(run)
        for label, note in like.notes(data.config).items():
            say(stdout_console(quiet=place.quiet), f"{label}: {note}")
        config = like.config(data.config, has_items=has_items, takes_features=takes_features)
        if raw is None or raw.protocol is None:
            config = replace(config, protocol="none")
        data = replace(data, config=config)
    given = {name: one for name, one in place.settings().items() if one is not None}
    request = replace(request, data=data, **given)
    request.check_names()

    from foretaste.training.api import train_run

    with display_training(request.config, place) as display:
        trained = train_run(request, display)
    print_run(trained, place)


def resume(
    run: Path,
    /,
    *,
    dataset: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    logs: LogOptions = None,
    threads: int | None = None,
) -> None:
    """RUN: resume a training that was interrupted or killed.

    Its state is saved every minute and after Ctrl-C. Weights and metrics equal those of a training
    that never stopped. The settings stay as at its start.

    Args:
        run: Directory of the run.
        dataset: Present directory of the run's dataset, if it was moved.
        overwrite: Replace existing files of --log-path and --results-dir.
        threads: CPU threads of each rank; by default PyTorch's number.
    """
    from foretaste import training
    from foretaste.runs import Run
    from foretaste.training.request import TrainRequest

    logs = logs or Logs()
    opened = Run.to_resume(run)
    with display_training(TrainRequest.of_run(opened).config, logs) as display:
        resumed = training.resume(
            opened,
            dataset=dataset,
            overwrite=overwrite,
            logs=logs.config(),
            callback=display,
            threads=threads,
        )
    print_run(resumed, logs)


for position, name in enumerate(MODELS):
    train.command(command_for(name), name=name, help=config_class(name).__doc__, sort_key=position)
add_commands(train, "train", sort_key=len(MODELS))
train.command(rerun, name="--like", sort_key=len(MODELS) + 1)
train.command(resume, name="--resume", sort_key=len(MODELS) + 2)


@contextmanager
def display_training(config: TrainingConfig, logs: Logs) -> Iterator[TrainingDisplay]:
    """Yield the display of a training; print the final metrics at the end."""
    from foretaste.evaluation.config import EvaluationConfig, parse_metric
    from foretaste.measure.tables import evaluation_grid
    from foretaste.training.display import TrainingDisplay

    console = stdout_console(quiet=logs.quiet)
    with TrainingDisplay(console, config, verbose=logs.verbose) as display:
        try:
            yield display
        finally:
            summary = display.summary
            if summary is not None and (test := summary.test) is not None:
                # Show the metrics also at the list length of the metric that chose the epoch.
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

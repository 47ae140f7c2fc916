"""What every ``foretaste train`` does: open the data, train, say where the run is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, say_next, stdout_console, steps
from foretaste.cli.help import OUTPUT, RAW_FILES
from foretaste.data.config import Filters, InputConfig, PrepareConfig, Protocol
from foretaste.training.config import LogConfig, PretrainingConfig, TrainingConfig

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.data import Dataset
    from foretaste.models.config import SamplingConfig
    from foretaste.runs import Run


@dataclass(frozen=True, kw_only=True)
class RawData(InputConfig):
    """How a raw file is prepared before training. A dataset is taken as it is."""

    protocol: Protocol | None = None
    """How interactions are split; foretaste prepare --help explains, and has every setting."""

    filters: Filters | None = None
    """Which rows are kept; foretaste prepare --help explains."""

    items: Path | None = None
    """A file that describes items: their ids, and columns such as a title."""

    source_dir: Path | None = None
    """Folder of a named set's files or archive (ml-1m and others); nothing is downloaded then."""

    def open(self, sources: Sequence[Path], *, quiet: bool = False) -> Dataset:
        """The dataset at the only source, or the one that the interactions of all make."""
        from foretaste.data import open_or_prepare

        others = {"items", "source_dir"}
        asked = {name: value for name, value in vars(self).items() if name not in others}
        config = PrepareConfig(**{name: value for name, value in asked.items() if value})
        names = [str(source) for source in sources]
        with steps("Preparing", quiet=quiet) as tell:
            return open_or_prepare(
                names if len(names) > 1 else names[0],
                config,
                items=self.items,
                source_dir=self.source_dir,
                progress=tell,
            )


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """Where the run goes."""

    run: Path | None = None
    """Directory of the run, new or empty; RUNS_ROOT/MODEL-DATASET-TIME unless given."""

    overwrite: Annotated[bool, FLAG] = False
    """Replace the run in that directory, and what another training wrote to --log-path and
    --results-dir. All of it stays as it is until the new training is finished."""

    runs_root: Path | None = None
    """Directory of runs that are given no name; ./runs unless given."""

    def arguments(self) -> dict[str, Any]:
        """What of it was given, as `train` calls it."""
        given = {"run_path": self.run, "runs_root": self.runs_root}
        named = {name: value for name, value in given.items() if value is not None}
        return named | {"overwrite": self.overwrite}


_NO_OPTION = Parameter(parse=False)


@dataclass(frozen=True, kw_only=True)
class FitLogs(LogConfig):
    """What is shown and written of a training in one pass."""

    tensorboard: Annotated[bool, FLAG] = LogConfig.tensorboard
    trace: Annotated[bool, _NO_OPTION] = LogConfig.trace
    verbose: Annotated[bool, _NO_OPTION] = False

    quiet: Annotated[bool, FLAG] = False
    """Print the directory of the run and nothing else."""

    definitions: Annotated[bool, FLAG] = False
    """Print the definition of each metric below the final numbers."""

    def config(self) -> LogConfig:
        """What is to be written."""
        return LogConfig(**{item.name: getattr(self, item.name) for item in fields(LogConfig)})


@dataclass(frozen=True, kw_only=True)
class Logs(FitLogs):
    """What is shown and written of a training in steps."""

    trace: Annotated[bool, FLAG] = LogConfig.trace

    verbose: Annotated[bool, FLAG] = False
    """Show every setting at the start, and of every epoch what changes as it goes on (beta, loss
    scale) and all that its validation found."""


Source = Annotated[Path, Parameter(required=True)]
"""A dataset, or one of several raw files."""
RawOptions = Annotated[RawData | None, Parameter(name="*", group=RAW_FILES)]
RunOptions = Annotated[NewRun | None, Parameter(name="*", group=OUTPUT)]
LogOptions = Annotated[Logs | None, Parameter(name="*", group=OUTPUT)]
FitLogOptions = Annotated[FitLogs | None, Parameter(name="*", group=OUTPUT)]


def train_and_report(
    model: str,
    sources: Sequence[Path],
    raw: RawData | None,
    place: NewRun | None,
    logs: FitLogs | None,
    *,
    model_config: Any = None,
    config: TrainingConfig | None = None,
    sampling: SamplingConfig | None = None,
    start_from: Path | None = None,
    pretraining: PretrainingConfig | None = None,
    **settings: Any,
) -> None:
    """Train ``model`` on what is at ``sources`` while showing how it goes, then say where the run
    is; ``settings`` are by name."""
    logs, place = logs or Logs(), place or NewRun()
    console = stdout_console(quiet=logs.quiet)
    _check_runs(place, start_from, pretraining)
    dataset = (raw or RawData()).open(sources, quiet=logs.quiet)

    # A name that is misspelled need not wait for torch.
    from foretaste.cli.training_display import SessionDisplay
    from foretaste.training import train

    if list(sources) != [dataset.path]:
        say(console, f"Prepared {', '.join(map(str, sources))}: {dataset.path}")
        for label, value in dataset.manifest.choices():
            say(console, f"  {label:12}{value}")
    with SessionDisplay(console, config or TrainingConfig(), logs) as display:
        run = train(
            model,
            dataset,
            model_config=model_config,
            config=config,
            sampling=sampling,
            start_from=start_from,
            pretraining=pretraining,
            logs=logs.config(),
            callback=display,
            **place.arguments(),
            **settings,
        )
    _say_where(console, run, logs)


def _check_runs(
    place: NewRun, start_from: Path | None, pretraining: PretrainingConfig | None
) -> None:
    """RunError where the new run is there already, or one to begin with is not."""
    from foretaste.runs import Run
    from foretaste.runs.paths import check_is_new

    if place.run is not None and not place.overwrite:
        check_is_new(place.run)
    halves = (pretraining.pretrained_gmf, pretraining.pretrained_mlp) if pretraining else ()
    for path in (start_from, *halves):
        if path is not None:
            Run.open(path)


def resume_and_report(
    path: Path, dataset_path: Path | None, logs: Logs | None, *, overwrite: bool
) -> None:
    """Go on with the training of a run while showing how it goes."""
    from foretaste.runs import Run

    logs = logs or Logs()
    console = stdout_console(quiet=logs.quiet)
    run = Run.open(path)

    from foretaste.cli.training_display import SessionDisplay
    from foretaste.training import resume
    from foretaste.training.verbs import asked_settings

    with SessionDisplay(console, asked_settings(run), logs) as display:
        run = resume(
            run,
            dataset_path=dataset_path,
            overwrite=overwrite,
            logs=logs.config(),
            callback=display,
        )
    _say_where(console, run, logs)


def _say_where(console: Console, run: Run, logs: FitLogs) -> None:
    if logs.quiet:
        say(stdout_console(), str(run.path))
        return
    say(console)
    say(console, f"Run: {run.path}")
    if logs.trace:
        from foretaste.training.profiler import TRACE

        say(console, f"Trace: {run.path / TRACE} (open it at ui.perfetto.dev)")
    _say_next(console, run)


def _say_next(console: Console, run: Run) -> None:
    import numpy as np

    (user_id,) = run.users.ids(np.arange(1))
    item_ids = run.items.ids(np.arange(min(2, run.num_items)))
    histories = [part for item_id in item_ids for part in ("--history", item_id)]
    commands: list[tuple[object, ...]] = [
        ("foretaste", "recommend", run.path, "--user", user_id),
        ("foretaste", "recommend", run.path, *histories),
    ]
    if run.config.dataset.protocol != "none":
        commands.append(("foretaste", "compare", run.path, "OTHER_RUN"))
    say_next(console, *commands)

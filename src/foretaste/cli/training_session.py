"""What every ``foretaste train`` does: open the data, train, say where the run is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretaste.cli.console import say, say_next, stdout_console, steps
from foretaste.data.config import Filters, PrepareConfig, Protocol
from foretaste.training.config import TrainingConfig

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.data import Dataset
    from foretaste.models.neumf.config import SamplingConfig
    from foretaste.runs import Run


@dataclass(frozen=True, kw_only=True)
class RawData:
    """How a raw file is prepared before training. A dataset is taken as it is."""

    protocol: Protocol | None = None
    """How interactions are split; foretaste prepare --help explains, and has every setting."""

    filters: Filters | None = None
    """Which rows are kept; foretaste prepare --help explains."""

    items: Path | None = None
    """A file that describes items: their ids, and columns such as a title."""

    user_column: str | None = None
    """Column of the user ids; common spellings are found without it."""

    item_column: str | None = None
    """Column of the item ids; common spellings are found without it."""

    rating_column: str | None = None
    """Column of the ratings; common spellings are found without it. Read only for a rating rule."""

    time_column: str | None = None
    """Column of times or of each user's order; common spellings are found without it."""

    def open(self, source: Path) -> Dataset:
        """The dataset at ``source``, or the one that its interactions make."""
        from foretaste.data import open_or_prepare

        asked = {name: value for name, value in vars(self).items() if name != "items"}
        config = PrepareConfig(**{name: value for name, value in asked.items() if value})
        with steps("Preparing") as tell:
            return open_or_prepare(str(source), config, items=self.items, progress=tell)


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """Where the run goes."""

    run: Path | None = None
    """Directory of the run, which must not exist; RUNS_ROOT/MODEL-DATASET-TIME unless given."""

    runs_root: Path | None = None
    """Directory of runs that are given no name; ./runs unless given."""

    def arguments(self) -> dict[str, Any]:
        """What of it was given, as `train` calls it."""
        given = {"run_path": self.run, "runs_root": self.runs_root}
        return {name: value for name, value in given.items() if value is not None}


RawOptions = Annotated[RawData | None, Parameter(name="*", group="Raw files")]
RunOptions = Annotated[NewRun | None, Parameter(name="*", group="Run")]


def train_and_report(
    model: str,
    source: Path,
    raw: RawData | None,
    place: NewRun | None,
    *,
    model_config: Any = None,
    config: TrainingConfig | None = None,
    sampling: SamplingConfig | None = None,
) -> None:
    """Train ``model`` on ``source`` while showing how it goes, then say where the run is."""
    from foretaste.cli.training_display import TrainingDisplay
    from foretaste.training import train

    console = stdout_console()
    dataset = (raw or RawData()).open(source)
    if source != dataset.path:
        say(console, f"Prepared {source}: {dataset.path} ({dataset.manifest.protocol})")
    with TrainingDisplay(console, config or TrainingConfig()) as display:
        run = train(
            model,
            dataset,
            model_config=model_config,
            config=config,
            sampling=sampling,
            progress=display,
            **(place or NewRun()).arguments(),
        )
    say(console)
    say(console, f"Run: {run.path}")
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

"""Options of ``foretaste train``: their groups on the help page, and the options of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from foretaste._util.formatting import option_words, without_secrets
from foretaste.cli.arguments import FLAG, types_in, unset
from foretaste.data.config import Filters, Protocol
from foretaste.models.config import ModelConfig
from foretaste.training.config import (
    LogConfig,
    PretrainingConfig,
    TrainingConfig,
    applies,
)

if TYPE_CHECKING:
    from foretaste.data.request import PrepareRequest


# In the order of the page.
SETTINGS = Group.create_ordered("Settings")
MORE = Group.create_ordered("More settings")
OUTPUT = Group.create_ordered("Output")
RAW_FILES = Group.create_ordered("Raw files")
RARE = Group.create_ordered("Rarely needed")

_FIRST = frozenset(
    [
        "epochs",
        "batch_size",
        "learning_rate",
        "patience",
        "seed",
        "search",
        "run",
        "factors",
        "layers",
        "hidden",
        "latent",
        "width",
        "blocks",
        "max_length",
        "dropout",
        "negatives",
        "neighbors",
        "l2",
        "recency",
        "window",
        "shrinkage",
        "alpha",
        "beta",
        "unobserved_weight",
        "regularization",
    ]
)
"""Settings that people change first: at most ten of a model, above all others on its page."""

_RARE = frozenset(
    [
        "validation_users",
        "cuda_graphs",
        "checkpoint_every_s",
        "eps",
        "warm_up_epochs",
        "evaluation_batch",
    ]
)


@dataclass(frozen=True, kw_only=True)
class RawData:
    """Options of raw files; foretaste prepare has those for their columns and formats."""

    protocol: Protocol | None = None
    """Split of the interactions; foretaste prepare --help explains it, and has all settings."""

    filters: Filters | None = None
    """Filters of the rows; foretaste prepare --help explains them."""

    items: str | None = None
    """File or database that describes items: their ids, and columns such as a title."""

    features: tuple[str, ...] | None = None
    """Columns of the items file that models learn from; foretaste prepare --help explains them."""

    source_dir: Path | None = None
    """Folder with a named set's files or archive (ml-1m and others); nothing is then downloaded."""


def train_on_everything(run: Path, data: PrepareRequest) -> list[tuple[object, ...]]:
    """Return the command that trains a run's model on all its raw files; none for a dataset."""
    if data.is_prepared:
        return []
    # Without --protocol, because the default of --like holds nothing out.
    given = {
        "filters": None if data.config.filters == "auto" else data.config.filters,
        "items": data.items,
        "features": data.config.features,
        "source_dir": data.source_dir,
    }
    words = map(without_secrets, (*data.sources, *option_words(given)))
    return [("foretaste", "train", "--like", run, *words)]


@dataclass(frozen=True, kw_only=True)
class Logs(LogConfig):
    """Options of the printed and written numbers."""

    tensorboard: Annotated[bool, FLAG] = LogConfig.tensorboard
    trace: Annotated[bool, FLAG] = LogConfig.trace

    verbose: Annotated[bool, FLAG] = False
    """Print all settings at the start, and for every epoch the values that change (beta, loss
    scale) and all metrics of its validation."""

    quiet: Annotated[bool, FLAG] = False
    """Print the directory of the run and nothing else."""

    def config(self) -> LogConfig:
        """Return the files to write."""
        return LogConfig(**{item.name: getattr(self, item.name) for item in fields(LogConfig)})


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of the place, the start and the machine of a training."""

    run: Path | None = None
    """Directory of the run: new, empty, or an unfinished run of the same settings, which is
    resumed. Default: runs/MODEL-DATASET-TIME."""

    overwrite: Annotated[bool, FLAG] = False
    """Replace the run there once the new one, until then in RUN.next, is finished; files of
    --log-path and --results-dir at once."""

    start_from: Annotated[Path | None, Parameter(name="--from")] = None
    """Run of the same model whose weights the training begins with. Its model settings are the
    defaults. Users and items are matched by id; new ones begin with random weights."""

    threads: int | None = None
    """CPU threads of each rank; by default PyTorch's number."""


@dataclass(frozen=True, kw_only=True)
class NewRun(Logs, Place):
    """Options of a new run."""

    def settings(self) -> dict[str, Any]:
        """Return the keywords of a request."""
        names = ("run", "overwrite", "start_from", "threads")
        return {name: getattr(self, name) for name in names} | {"logs": self.config()}


Source = Annotated[str, Parameter(required=True)]
"""A dataset, or several raw files."""
RawOptions = Annotated[RawData | None, Parameter(name="*", group=RAW_FILES)]
RunOptions = Annotated[NewRun | None, Parameter(name="*", group=OUTPUT)]
LogOptions = Annotated[Logs | None, Parameter(name="*", group=OUTPUT)]


HIDDEN = ("eps", "warm_up_epochs", "evaluation_batch", "anneal_epochs")
"""Settings that are accepted but not on the help page."""


def options_of(kind: type[ModelConfig]) -> dict[str, Any]:
    """Return argument types of a model's ``train`` command by name, with parameters for help."""
    without = () if kind.has_epochs else ("trace", "verbose", "start_from")
    configs: dict[str, tuple[Any, bool]] = {
        "config": (unset(in_groups(TrainingConfig, lambda name: applies(name, kind))), True),
        "model_config": (unset(in_groups(kind)), bool(fields(kind))),
        "place": (in_groups(NewRun, lambda name: name not in without), True),
        "pretraining": (PretrainingConfig, bool(kind.pretrained_parts)),
    }
    return {
        name: Annotated[config | None, Parameter(name="*", group=MORE, parse=applies)]
        for name, (config, applies) in configs.items()
    }


def in_groups(config: type[Any], takes: Callable[[str], bool] = lambda _: True) -> Any:
    """Return a config with its settings in groups, only those that the command takes."""
    # Python alone has a schedule longer than the training; --like repeats it.
    return shown_as(
        config,
        {
            item.name: Parameter(
                group=SETTINGS if item.name in _FIRST else RARE if item.name in _RARE else MORE,
                parse=takes(item.name) and item.name != "schedule_epochs",
                show=False if item.name in HIDDEN else None,
            )
            for item in fields(config)
        },
    )


def shown_as(config: type[Any], parameters: Mapping[str, Parameter]) -> type[Any]:
    """Return a config's subclass with ``parameters``; numbers that may be auto are INT|auto."""
    hints, plain = get_type_hints(config, include_extras=True), get_type_hints(config)
    annotations = {
        item.name: Annotated[
            hints[item.name], _metavar(plain[item.name]), parameters.get(item.name, Parameter())
        ]
        for item in fields(config)
    }
    # Only the annotations are new; the fields and defaults are the parent's.
    return type(config.__name__, (config,), {"__annotations__": annotations})


def _metavar(hint: Any) -> Parameter:
    """Return the metavar of a number that may be auto; empty for others: cyclopts names them."""
    kinds = types_in(hint)
    if "auto" not in kinds or not kinds & {int, float}:
        return Parameter()
    return Parameter(metavar="FLOAT|auto" if float in kinds else "INT|auto", show_choices=False)


_Rerun: Any = shown_as(
    NewRun,
    {
        "start_from": Parameter(
            help="Run of the same model whose weights the training begins with, such as the run "
            "itself. By default the weights begin like the run's."
        )
    },
)
RerunOptions = Annotated[_Rerun | None, Parameter(name="*", group=OUTPUT)]

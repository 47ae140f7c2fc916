"""Options of ``foretaste train``: their groups on the help page, and the options of a model."""

from __future__ import annotations

from collections.abc import Mapping
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
TRAINING = Group.create_ordered("Training")
MODEL = Group.create_ordered("Model")
NEGATIVES = Group.create_ordered("Negatives")
OUTPUT = Group.create_ordered("Output")
EVALUATION = Group.create_ordered("Evaluation")
OPTIMIZER = Group.create_ordered("Optimizer")
START = Group.create_ordered("Warm start")
MACHINE = Group.create_ordered("Machine")
RAW_FILES = Group.create_ordered("Raw files")
RARE = Group.create_ordered("Rarely needed")

_TRAINING_GROUPS = {
    EVALUATION: "eval_every eval_after select_by candidates",
    OPTIMIZER: "beta1 beta2 ema",
    MACHINE: "device precision loss_scale kernels",
    RARE: "validation_users cuda_graphs checkpoint_every_s eps warm_up_epochs evaluation_batch",
}
"""Groups of training settings that are not in the group Training."""

_NONE = Parameter(parse=False)
"""Parameter of a setting that is no option."""
OF_NEGATIVES = ("negatives", "verified_negatives", "batch_layout")
"""Settings of a model's negatives, which have their own group on its page."""


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
    """The command that trains a run's model on all its raw files; none for a dataset."""
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
        """The files to write."""
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

    start_from: Annotated[Path | None, Parameter(name="--from", group=START)] = None
    """Run of the same model whose weights the training begins with. Its model settings are the
    defaults. Users and items are matched by id; new ones begin with random weights."""

    threads: Annotated[int | None, Parameter(group=MACHINE)] = None
    """CPU threads of each rank; by default PyTorch's number."""


@dataclass(frozen=True, kw_only=True)
class NewRun(Logs, Place):
    """Options of a new run."""

    def settings(self) -> dict[str, Any]:
        """The keywords of a request."""
        names = ("run", "overwrite", "start_from", "threads")
        return {name: getattr(self, name) for name in names} | {"logs": self.config()}


Source = Annotated[str, Parameter(required=True)]
"""A dataset, or several raw files."""
RawOptions = Annotated[RawData | None, Parameter(name="*", group=RAW_FILES)]
RunOptions = Annotated[NewRun | None, Parameter(name="*", group=OUTPUT)]
LogOptions = Annotated[Logs | None, Parameter(name="*", group=OUTPUT)]
Threads = Annotated[int | None, Parameter(group=MACHINE)]


HIDDEN = ("eps", "warm_up_epochs", "evaluation_batch")
"""Settings of a training that are accepted but not on the help page; the options of NVIDIA's
scripts need them."""


def options_of(kind: type[ModelConfig]) -> dict[str, Any]:
    """Types of the arguments of a model's ``train`` command, by name, with parameters for help."""
    place: Any = NewRun
    if not kind.has_epochs:
        place = shown_as(NewRun, dict.fromkeys(("trace", "verbose", "start_from"), _NONE))
    negatives = {name: Parameter(group=NEGATIVES) for name in OF_NEGATIVES}
    negatives["anneal_epochs"] = Parameter(show=False)
    configs: dict[str, tuple[Any, Group, bool]] = {
        "model_config": (unset(shown_as(kind, negatives)), MODEL, bool(fields(kind))),
        "config": (unset(_training_options(kind)), TRAINING, True),
        "pretraining": (PretrainingConfig, START, bool(kind.pretrained_parts)),
        "place": (place, OUTPUT, True),
    }
    return {
        name: Annotated[config | None, Parameter(name="*", group=group, parse=applies)]
        for name, (config, group, applies) in configs.items()
    }


def _training_options(kind: type[ModelConfig]) -> type[TrainingConfig]:
    """The training settings in their groups, without those that a model ignores."""
    names = get_type_hints(TrainingConfig)
    return shown_as(
        TrainingConfig, {name: training_option(name, parse=applies(name, kind)) for name in names}
    )


def training_option(name: str, *, parse: bool) -> Parameter:
    """The option of a training setting, in its group, if ``parse``."""
    groups = (group for group, names in _TRAINING_GROUPS.items() if name in names.split())
    return Parameter(
        group=next(groups, TRAINING),
        # Python alone has a schedule longer than the training; --like repeats it.
        parse=parse and name != "schedule_epochs",
        show=False if name in HIDDEN else None,
    )


def shown_as(config: type[Any], parameters: Mapping[str, Parameter]) -> type[Any]:
    """A subclass of a config with ``parameters`` for some of its options; numbers that may be auto
    are shown as INT|auto."""
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
    """The metavar of a number that may be auto; empty for others, which cyclopts names itself."""
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

"""Layout of help pages: groups of options in their order, those of raw files in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from cyclopts import Group, Parameter
from cyclopts.help import HelpPanel

from foretaste.cli.arguments import kinds_of
from foretaste.training.config import TrainingConfig

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions


def _only_names(console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
    """Draw a panel that has the names of its options, and says where they are explained."""
    from rich.panel import Panel
    from rich.text import Text

    names = " ".join(entry.names[0] for entry in panel.entries)
    text = Text.assemble("As in foretaste prepare --help: ", (names, "cyan"))
    console.print(Panel(text, title=str(panel.title), title_align="left"))


TRAINING = Group.create_ordered("Training")
MODEL = Group.create_ordered("Model")
NEGATIVES = Group.create_ordered("Negatives")
OUTPUT = Group.create_ordered("Output")
EVALUATION = Group.create_ordered("Evaluation")
OPTIMIZER = Group.create_ordered("Optimizer")
START = Group.create_ordered("Warm start")
MACHINE = Group.create_ordered("Machine")
RAW_FILES = Group.create_ordered("Raw files", help_formatter=_only_names)
"""The groups of a training's options, in the order of the page."""


def _laid_out(
    config: type[Any], default: Group, groups: Mapping[Group, Sequence[str]]
) -> type[Any]:
    """The same settings, some of them shown in other groups than ``default``."""
    group_of = {name: group for group, names in groups.items() for name in names}
    hints = get_type_hints(config, include_extras=True)
    annotations = {
        name: Annotated[hint, _number_or_auto(hint), Parameter(group=group_of.get(name, default))]
        for name, hint in hints.items()
    }
    # The fields are those of the parent: types alone are given anew, which say how each is shown.
    return type(config.__name__, (config,), {"__annotations__": annotations})


def _number_or_auto(hint: Any) -> Parameter | None:
    """``INT|auto`` for an option that takes it, in place of a list of its one choice."""
    kinds = kinds_of(hint)
    if "auto" not in kinds or not kinds & {int, float}:
        return None
    return Parameter(metavar=f"{'FLOAT' if float in kinds else 'INT'}|auto", show_choices=False)


if TYPE_CHECKING:
    TrainingSettings = TrainingConfig
else:
    TrainingSettings = _laid_out(
        TrainingConfig,
        TRAINING,
        {
            EVALUATION: (
                *("eval_every", "eval_after", "select_by", "candidates"),
                *("validation_users", "evaluation_batch"),
            ),
            OPTIMIZER: ("beta1", "beta2", "eps"),
            MACHINE: (
                *("device", "precision", "loss_scale", "compile", "kernels", "cuda_graphs"),
                *("checkpoint_every_s", "warm_up_epochs"),
            ),
        },
    )

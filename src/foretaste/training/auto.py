"""The plan of a training: every ``auto`` setting as a number, for the model and the data's size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from foretaste._util.settings import Count, check_settings
from foretaste.errors import SettingError
from foretaste.evaluation.config import metric_name, parse_metric
from foretaste.training.config import TrainingConfig

if TYPE_CHECKING:
    from foretaste.models.base import IterativeModel, TrainingSize
    from foretaste.models.config import SamplingConfig


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(TrainingConfig):
    """Training settings without any ``auto`` left: those that one training follows."""

    epochs: Count
    batch_size: Count
    learning_rate: float
    beta1: float
    beta2: float
    eval_every: Count
    patience: int

    def __post_init__(self) -> None:
        # Not the checks of what is asked for: on a CPU, `resolve` itself chooses chunked kernels,
        # with compile too.
        check_settings(self)

    def evaluates(self, epoch: int) -> bool:
        """True of an epoch, counted from 1, that ends with an evaluation."""
        is_due = epoch > self.eval_after and epoch % self.eval_every == 0
        return is_due or epoch == self.epochs


def resolve(
    config: TrainingConfig,
    model: type[IterativeModel],
    size: TrainingSize,
    *,
    sampling: SamplingConfig | None,
    device: str,
) -> TrainingPlan:
    """The plan for ``config`` and a model on data of that size; ``device`` is the one found."""
    select_by = "ndcg@100" if size.protocol == "held-out-users" else "ndcg@10"
    chosen = model.auto_settings(size, sampling) | {"select_by": select_by}
    asked = {name: value for name, value in asdict(config).items() if value != "auto"}
    kernels = config.kernels
    if device == "cpu":
        if kernels == "triton":
            raise SettingError(
                "kernels is triton, whose kernels are for NVIDIA GPUs, and the device is the CPU; "
                "leave it out"
            )
        kernels = "chunked"  # on a CPU there is one choice; on a GPU every operation has its own
    values = chosen | asked | {"device": device, "kernels": kernels}
    kind, length = parse_metric(values["select_by"])
    if kind == "coverage" and config.candidates != "full":
        raise SettingError(
            f"select_by is coverage@{length}, which candidates {config.candidates} do not have; "
            "use --candidates full or another metric"
        )
    return TrainingPlan(**(values | {"select_by": metric_name(kind, length)}))

"""``foretaste train popularity | ease``: models that are fitted in one pass."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from foretaste.cli.help import EVALUATION, MACHINE, MODEL
from foretaste.cli.training_session import (
    FitLogOptions,
    RawOptions,
    RunOptions,
    Source,
    train_and_report,
)
from foretaste.models.baselines.config import EaseConfig
from foretaste.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """What of the training settings acts on a model without epochs."""

    device: Annotated[str, Parameter(group=MACHINE)] = TrainingConfig.device
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""

    candidates: str = TrainingConfig.candidates
    """What held-out items are ranked against: full, sampled-N, nvidia-N or fixed."""

    evaluation_batch: int | None = TrainingConfig.evaluation_batch
    """Users ranked at once; as many as fit 64 MiB of scores (512 MiB on a GPU) unless given."""

    def training(self) -> TrainingConfig:
        """The same as training settings."""
        return TrainingConfig(**asdict(self))


FitOptions = Annotated[FitConfig | None, Parameter(name="*", group=EVALUATION)]


def popularity(
    *dataset: Source,
    config: FitOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
    logs: FitLogOptions = None,
) -> None:
    """Fit popularity: every user is shown what most users have. Other models must beat it.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    fitting = config.training() if config else None
    train_and_report("popularity", dataset, raw, place, logs, config=fitting)


def ease(
    *dataset: Source,
    model: Annotated[EaseConfig | None, Parameter(name="*", group=MODEL)] = None,
    config: FitOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
    logs: FitLogOptions = None,
) -> None:
    """Fit EASE (Steck 2019): linear item-to-item weights in closed form, a strong baseline.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    fitting = config.training() if config else None
    train_and_report("ease", dataset, raw, place, logs, model_config=model, config=fitting)

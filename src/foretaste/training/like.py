"""The settings of a run, to be trained again: from experiment to shop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste._util.settings import fields_of
from foretaste.errors import RunError
from foretaste.models.neumf.config import SamplingConfig
from foretaste.runs.config import recorded
from foretaste.runs.loading import model_config
from foretaste.runs.paths import CONFIG
from foretaste.runs.run import Run
from foretaste.training.config import PretrainingConfig, TrainingConfig
from foretaste.training.warm_start import warm_start_arguments


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `train` takes beside the dataset."""

    model: str
    model_config: Any
    config: TrainingConfig
    sampling: SamplingConfig | None
    start_from: Path | None = None
    pretraining: PretrainingConfig | None = None


def repeated_settings(run: Run) -> Settings:
    """The settings a run was trained with, for as many epochs as its best one took.

    What ``auto`` chose is kept, and so is the warm start; device and kernels are found anew;
    nothing stops the training early. Raises RunError where the run was never finished.
    """
    asked, resolved, path = run.config.asked, run.config.resolved, run.path / CONFIG
    chosen = {**fields_of(TrainingConfig, asked), **fields_of(TrainingConfig, resolved)}
    chosen |= {name: asked[name] for name in ("device", "kernels")}
    best_epoch = _summary(run)["best_epoch"]
    if best_epoch is not None:
        chosen |= {"epochs": best_epoch, "patience": 0, "target": None}
    sampling = fields_of(SamplingConfig, asked)
    return Settings(
        model=run.config.model,
        model_config=model_config(run.config, path),
        config=recorded(TrainingConfig, chosen, path),
        sampling=recorded(SamplingConfig, sampling, path) if sampling else None,
        **warm_start_arguments(run.config.start),
    )


def asked_settings(run: Run) -> TrainingConfig:
    """How a run was asked to be trained."""
    return recorded(TrainingConfig, run.config.asked, run.path / CONFIG)


def _summary(run: Run) -> dict[str, Any]:
    """The last event of a finished training."""
    summaries = [event for event in run.log.read() if event["event"] == "summary"]
    if not summaries:
        raise RunError(
            f"{run.path} was never finished, so its best epoch is not known; "
            "name a run that was trained to the end"
        )
    return summaries[-1]

"""Training: the verbs, the one loop, its settings and callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.training.blending import blend, blend_weights
    from foretaste.training.callbacks import Callback, EpochReport, TrainingStart, TrainingSummary
    from foretaste.training.config import LogConfig, PretrainingConfig, TrainingConfig
    from foretaste.training.verbs import resume, train

_MODULE_OF = {
    "Callback": "callbacks",
    "EpochReport": "callbacks",
    "LogConfig": "config",
    "PretrainingConfig": "config",
    "TrainingConfig": "config",
    "TrainingStart": "callbacks",
    "TrainingSummary": "callbacks",
    "blend": "blending",
    "blend_weights": "blending",
    "resume": "verbs",
    "train": "verbs",
}

__all__ = [
    "Callback",
    "EpochReport",
    "LogConfig",
    "PretrainingConfig",
    "TrainingConfig",
    "TrainingStart",
    "TrainingSummary",
    "blend",
    "blend_weights",
    "resume",
    "train",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)

"""Training: the one loop, its batches, settings and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.training.config import LogConfig, PretrainingConfig, TrainingConfig
    from foretaste.training.progress import Progress
    from foretaste.training.resuming import resume
    from foretaste.training.trainer import train

_MODULE_OF = {
    "LogConfig": "config",
    "PretrainingConfig": "config",
    "Progress": "progress",
    "TrainingConfig": "config",
    "resume": "resuming",
    "train": "trainer",
}

__all__ = ["LogConfig", "PretrainingConfig", "Progress", "TrainingConfig", "resume", "train"]


__getattr__ = lazy_names(__name__, _MODULE_OF)

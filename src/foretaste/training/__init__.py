"""Training: the one loop, its batches, settings and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.training.config import TrainingConfig
    from foretaste.training.progress import Progress
    from foretaste.training.trainer import train

_MODULE_OF = {
    "Progress": "progress",
    "TrainingConfig": "config",
    "train": "trainer",
}

__all__ = ["Progress", "TrainingConfig", "train"]


__getattr__ = lazy_names(__name__, _MODULE_OF)

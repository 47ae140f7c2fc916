"""Training: the one loop, its batches, settings and progress."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretaste.training.config import TrainingConfig
    from foretaste.training.progress import Progress
    from foretaste.training.trainer import train

_PUBLIC = {
    "Progress": "foretaste.training.progress",
    "TrainingConfig": "foretaste.training.config",
    "train": "foretaste.training.trainer",
}

__all__ = ["Progress", "TrainingConfig", "train"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'foretaste.training' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)

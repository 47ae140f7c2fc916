"""The models behind one seam, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.models.base import ClosedFormModel, NeuralModel, RecommenderModel, UserState
    from foretaste.models.registry import MODEL_NAMES, build_model, config_class

_MODULE_OF = {
    "MODEL_NAMES": "registry",
    "ClosedFormModel": "base",
    "NeuralModel": "base",
    "RecommenderModel": "base",
    "UserState": "base",
    "build_model": "registry",
    "config_class": "registry",
}

__all__ = [
    "MODEL_NAMES",
    "ClosedFormModel",
    "NeuralModel",
    "RecommenderModel",
    "UserState",
    "build_model",
    "config_class",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)

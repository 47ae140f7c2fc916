"""The HTTP service: recommendations, similar items and items by title, from runs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.serve.config import ServeConfig
    from foretaste.serve.server import serve

_MODULE_OF = {"ServeConfig": "config", "serve": "server"}

__all__ = ["ServeConfig", "serve"]

__getattr__ = lazy_names(__name__, _MODULE_OF)

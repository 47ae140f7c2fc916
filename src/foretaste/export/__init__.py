"""Runs as programs that need no foretaste: ONNX, or a PyTorch program; histories in, lists out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.export.exporting import Exported, export_run

_MODULE_OF = {"Exported": "exporting", "export_run": "exporting"}

__all__ = ["Exported", "export_run"]

__getattr__ = lazy_names(__name__, _MODULE_OF)

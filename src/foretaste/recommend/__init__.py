"""A run answering: what next for known and new users, and what is similar to an item."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretaste.recommend.answers import Answer, ScoredItem, to_table
    from foretaste.recommend.export import Export
    from foretaste.recommend.ids_file import read_ids
    from foretaste.recommend.recommender import Recommender, load

_MODULE_OF = {
    "Answer": "answers",
    "Export": "export",
    "Recommender": "recommender",
    "ScoredItem": "answers",
    "load": "recommender",
    "read_ids": "ids_file",
    "to_table": "answers",
}

__all__ = ["Answer", "Export", "Recommender", "ScoredItem", "load", "read_ids", "to_table"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

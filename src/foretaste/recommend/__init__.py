"""Recommendations for known and new users, and similar items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.recommend.answers import Answer, Answers, ScoredItem, SimilarUsers, to_table
    from foretaste.recommend.export import Export
    from foretaste.recommend.inputs import read_ids
    from foretaste.recommend.recommender import Recommender, load

_MODULE_OF = {
    "Answer": "answers",
    "Answers": "answers",
    "Export": "export",
    "Recommender": "recommender",
    "ScoredItem": "answers",
    "SimilarUsers": "answers",
    "load": "recommender",
    "read_ids": "inputs",
    "to_table": "answers",
}

__all__ = [
    "Answer",
    "Answers",
    "Export",
    "Recommender",
    "ScoredItem",
    "SimilarUsers",
    "load",
    "read_ids",
    "to_table",
]

# Here, where the command line reads it without NumPy and Arrow.
Unknown = Literal["error", "skip", "popular"]
"""Treatment of users that a run does not know: refused, left out or in popularity order."""

__getattr__ = lazy_names(__name__, _MODULE_OF)

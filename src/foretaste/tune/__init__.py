"""Many trainings in one directory: searches of settings and competitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.tune.competition import compete
    from foretaste.tune.leaderboard import Entry, Leaderboard
    from foretaste.tune.search import tune_model
    from foretaste.tune.trials import Search, Trial

_MODULE_OF = {
    "Entry": "leaderboard",
    "Leaderboard": "leaderboard",
    "Search": "trials",
    "Trial": "trials",
    "compete": "competition",
    "tune_model": "search",
}

__all__ = [
    "Entry",
    "Leaderboard",
    "Search",
    "Trial",
    "compete",
    "tune_model",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)

"""Settings of preparing raw interactions and of generating some."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from foretaste.errors import SettingError

Protocol = Literal["auto", "leave-one-out", "held-out-users", "temporal", "none"]
Validation = Literal["hold-out", "none"]
Filters = Literal["none", "reference"]

MAX_SEED = 2**63 - 1

_MEMORY_LIMIT = re.compile(r"[1-9][0-9]*(\.[0-9]+)? ?([KMGT]i?B)", re.IGNORECASE)
_RESOURCES = frozenset({"memory_limit", "threads"})


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Which interactions are kept, and how they are split into training and held-out parts."""

    protocol: Protocol = "auto"
    """How interactions are split. ``leave-one-out`` holds out the last of each user,
    ``held-out-users`` keeps whole users out of training, ``temporal`` cuts at a moment in time,
    ``none`` trains on everything. ``auto`` is leave-one-out where there is a time column,
    held-out-users otherwise."""

    validation: Validation = "hold-out"
    """``hold-out`` keeps a validation part for choosing the best epoch; ``none`` gives it to
    training, so that the best epoch can only be chosen on the test part, as the reference does."""

    filters: Filters = "none"
    """``reference`` keeps what the reference systems keep: ratings of 4 and more, then users with 5
    interactions, for held-out-users; users with 20 interactions otherwise."""

    min_user_interactions: int | None = None
    """Keep users with at least this many rows, repeats counted. Goes before ``filters``."""

    min_item_users: int | None = None
    """Keep items that at least this many users interacted with."""

    min_rating: float | None = None
    """Keep rows rated at least this high; needs a rating column. Goes before ``filters``."""

    user_column: str | None = None
    """Column of the user ids; common spellings are found without it."""

    item_column: str | None = None
    """Column of the item ids; common spellings are found without it."""

    rating_column: str | None = None
    """Column of the ratings; common spellings are found without it. Read only for a rating rule."""

    time_column: str | None = None
    """Column of times (numbers or dates) or of each user's order, oldest first; common spellings
    are found without it."""

    num_heldout_users: int | None = None
    """Users held out for validation, and as many for test, under held-out-users; a tenth of the
    users each unless given."""

    seed: int = 0
    """Decides by hash which users are held out, which of their items are targets, and ties in
    time."""

    memory_limit: str | None = None
    """Memory the preparation may take before it spills to disk, such as ``4GB``; most of the
    machine's unless given. Never changes the result."""

    threads: int | None = None
    """Threads of the preparation; all cores unless given. Never changes the result."""

    def __post_init__(self) -> None:
        _check_choice("protocol", self.protocol, get_args(Protocol))
        _check_choice("validation", self.validation, get_args(Validation))
        _check_choice("filters", self.filters, get_args(Filters))
        for name in ("min_user_interactions", "min_item_users", "num_heldout_users", "threads"):
            _check_positive(name, getattr(self, name))
        if self.min_rating is not None and not math.isfinite(self.min_rating):
            raise SettingError(f"min_rating must be a finite number, got {self.min_rating}")
        _check_seed(self.seed)
        if self.memory_limit is not None and not _MEMORY_LIMIT.fullmatch(self.memory_limit):
            raise SettingError(
                f"memory_limit must be a size such as 500MB or 4GB, got {self.memory_limit!r}"
            )
        if self.num_heldout_users and self.protocol not in ("auto", "held-out-users"):
            raise SettingError(
                f"num_heldout_users belongs to protocol held-out-users, not {self.protocol}"
            )

    def content(self) -> dict[str, Any]:
        """The settings that decide what the dataset holds; memory and threads do not."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in _RESOURCES
        }


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Shape of generated interactions; the defaults are the demonstration's."""

    num_users: int = 2_000
    """Users, every one of whom has interactions."""

    num_items: int = 1_000
    """Items to choose from; the least popular may end up without a user."""

    num_interactions: int = 60_000
    """Distinct (user, item) pairs, exactly; at most half of all there could be."""

    num_genres: int = 12
    """Genres planted among the items; users tend to a few of them."""

    taste: float = 2.0
    """How much tastes count beside popularity: at 0 everybody chooses by popularity alone."""

    seed: int = 0
    """Decides everything that is drawn."""

    def __post_init__(self) -> None:
        for name in ("num_users", "num_items", "num_interactions", "num_genres"):
            _check_positive(name, getattr(self, name))
        most = self.num_users * max(self.num_items // 2, 1)
        if not self.num_users <= self.num_interactions <= most:
            raise SettingError(
                f"num_interactions must be from {self.num_users:,} (one for each user) to "
                f"{most:,} (half of the items for each), got {self.num_interactions:,}"
            )
        if not 0 <= self.taste <= 10:
            raise SettingError(f"taste must be from 0 to 10, got {self.taste}")
        _check_seed(self.seed)


def ml_20m_shape(seed: int = 0) -> GenerateConfig:
    """Users, items and interactions of MovieLens 20M."""
    return GenerateConfig(
        num_users=138_493,
        num_items=26_744,
        num_interactions=20_000_263,
        num_genres=20,
        seed=seed,
    )


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= MAX_SEED:
        raise SettingError(f"seed must be an integer from 0 to 2^63 - 1, got {seed}")


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise SettingError(f"{name} must be at least 1, got {value}")

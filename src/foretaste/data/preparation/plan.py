"""The plan of a preparation: the columns that are found, and the settings resolved for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretaste._util.formatting import shown
from foretaste.data.config import PrepareConfig, WeightScale
from foretaste.data.manifest import RANDOM
from foretaste.data.preparation.columns import (
    NAMED,
    PAIR,
    check_columns,
    find_columns,
    find_spelling,
    is_rank,
)
from foretaste.data.sources.source import Source, quoted
from foretaste.errors import InputError, SettingError

_REFERENCE_MIN_INTERACTIONS = 20
_REFERENCE_MIN_INTERACTIONS_HELD_OUT = 5
_REFERENCE_MIN_RATING = 4.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings without ``auto``: a protocol, and the filters that apply."""

    protocol: str
    """``leave-one-out``, ``held-out-users``, ``temporal``, ``none``, or ``given`` where the source
    comes split."""

    label: str
    """The protocol as printed beside every metric."""

    filters: dict[str, float]
    """Of ``min_rating``, ``min_item_users``, ``min_user_interactions``, those that apply."""

    columns: dict[str, str]
    """The columns to read, by role."""

    has_validation: bool
    """True where a part is held out for choosing the best epoch."""

    drops_unseen_targets: bool
    """True where held-out items that training never saw are left out."""

    parts: tuple[str, ...]
    """The parts of a source that comes split, training first; none where it does not."""

    events: dict[str, float | None]
    """The weight of each event that is kept; all are where it is empty."""

    weight_scale: WeightScale | None
    """The scale of the weights; None where interactions have none."""

    @property
    def weight(self) -> str:
        """The weight of a row, in a query."""
        factors = ["weight" if "weight" in self.columns else "CAST(1 AS DOUBLE)"]
        if self.events:
            cases = " ".join(
                f"WHEN {quoted(event)} THEN CAST({weight or 1.0!r} AS DOUBLE)"
                for event, weight in self.events.items()
            )
            factors.append(f"CASE event {cases} END")
        return " * ".join(factors)

    @property
    def held_parts(self) -> tuple[str, ...]:
        """Every part but training's."""
        if self.parts or self.protocol == "none":
            return self.parts[1:]
        splits = ("validation", "test") if self.has_validation else ("test",)
        kinds = ("_fold_in", "_target") if self.protocol == "held-out-users" else ("",)
        return tuple(split + kind for split in splits for kind in kinds)

    @property
    def targets(self) -> dict[str, str]:
        """The held-out part with the items to be found, by its split: ``validation``, ``test``."""
        parts = (part for part in self.held_parts if not part.endswith("_fold_in"))
        return {part.removesuffix("_target"): part for part in parts}


def make_plan(
    config: PrepareConfig, sources: Sequence[Source], parts: tuple[str, ...] = ()
) -> Plan:
    """Find the columns in the first source, which every other one must have too, and resolve
    ``auto`` and the reference's filters for them.

    Raises InputError where a column is not to be found, SettingError where a setting needs one
    that is not there, or the source to be split otherwise than it is.
    """
    first = sources[0]
    named = (role for role in NAMED if getattr(config, f"{role}_column") is not None)
    found = find_columns(first, config, (*PAIR, "rating", "time", *named))
    has_times = "time" in found
    protocol: str = config.protocol
    has_validation = protocol != "none" and config.validation == "hold-out"
    if parts:
        has_validation = any(part.startswith("validation") for part in parts)
        if config.protocol != "auto":
            raise SettingError(
                f"protocol {config.protocol} would split what is split already; leave it out, or "
                "train on all of it with none"
            )
        if config.validation == "none" and has_validation:
            raise SettingError("validation is none, and a validation part is given; leave one out")
        protocol = "given"
    elif protocol == "auto":
        protocol = "leave-one-out" if has_times else "held-out-users"
    _check_columns_for(config, protocol, found)
    filters = _filters(config, protocol, has_ratings="rating" in found)
    needed = {"user_id", "item_id", *NAMED}
    if "min_rating" in filters:
        needed.add("rating")
    if protocol in ("leave-one-out", "temporal") or config.half_life is not None:
        needed.add("time")
    columns = {role: name for role, name in found.items() if role in needed}
    if config.time_format is not None and "time" not in columns:
        reason = f"{'a split that is given' if parts else f'protocol {protocol}'} reads no times;"
        if not has_times:
            reason = (
                "there is no time column; name one with --time-column (time_column=... in Python) "
                "or"
            )
        raise SettingError(f"time_format is {shown(config.time_format)}, and {reason} leave it out")
    ignores_times = bool(parts) or config.protocol not in ("auto", "leave-one-out")
    check_columns(sources, columns.values())
    for source in sources[1:] if not has_times and not ignores_times else ():
        # The split would not look at them.
        if name := find_spelling(list(source.columns), "time", source.name):
            raise InputError(
                f"{first.name}: has no column of times, and {source.name} has {shown(name)}; give "
                "files with the same columns, or a protocol that needs no times, such as "
                "held-out-users"
            )
    drops_unseen_targets = config.unseen_targets == "drop"
    if config.unseen_targets == "auto":
        drops_unseen_targets = config.filters == "reference" and protocol == "held-out-users"
    is_random = protocol == "leave-one-out" and not has_times
    return Plan(
        protocol=protocol,
        label=RANDOM if is_random else protocol,
        filters=filters,
        columns=columns,
        has_validation=has_validation,
        drops_unseen_targets=drops_unseen_targets,
        parts=parts,
        events=config.weight_of_event,
        weight_scale=(config.weight_scale or "linear") if config.gives_weights else None,
    )


def _check_columns_for(config: PrepareConfig, protocol: str, found: dict[str, str]) -> None:
    time = found.get("time")
    # A rank only orders the interactions of one user.
    if protocol == "temporal" and (time is None or is_rank(time)):
        problem = "there is no time column" if time is None else f"{time!r} is a rank"
        raise SettingError(
            f"protocol temporal needs real times, and {problem}; "
            "name one with --time-column (time_column=... in Python) or use another protocol"
        )
    if config.half_life is not None and (time is None or is_rank(time) or protocol == "given"):
        problem = "there is no time column" if time is None else f"{time!r} is a rank"
        if protocol == "given":
            problem = "of a split that is given none are read"
        raise SettingError(
            f"half_life needs real times, and {problem}; name a column of them with --time-column "
            "(time_column=... in Python), or leave it out"
        )
    if config.num_heldout_users is not None and protocol != "held-out-users":
        raise SettingError(
            f"num_heldout_users belongs to protocol held-out-users, and this one is {protocol}; "
            "ask for --protocol held-out-users"
        )
    if config.min_rating is not None and "rating" not in found:
        raise SettingError(
            "min_rating needs a rating column, and none is found; "
            "name it with --rating-column (rating_column=... in Python)"
        )


def _filters(config: PrepareConfig, protocol: str, *, has_ratings: bool) -> dict[str, float]:
    filters: dict[str, float] = {}
    if config.filters == "reference":
        filters["min_user_interactions"] = _REFERENCE_MIN_INTERACTIONS
        if protocol == "held-out-users":
            filters["min_user_interactions"] = _REFERENCE_MIN_INTERACTIONS_HELD_OUT
            if has_ratings:
                filters["min_rating"] = _REFERENCE_MIN_RATING
    names = ("min_rating", "min_item_users", "min_user_interactions")
    given = {name: getattr(config, name) for name in names}
    filters |= {name: value for name, value in given.items() if value is not None}
    return {name: filters[name] for name in names if name in filters}

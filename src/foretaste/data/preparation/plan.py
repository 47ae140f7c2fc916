"""The plan of a preparation: the columns of the source, and the settings without ``auto``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretaste._util.formatting import short_repr
from foretaste.data.config import PrepareConfig, WeightScale
from foretaste.data.manifest import NEW_ITEMS, RANDOM, UNSEEN
from foretaste.data.part_files import POSITION_COLUMN
from foretaste.data.preparation.columns import (
    check_columns,
    check_time_format,
    find_columns,
    is_rank,
)
from foretaste.data.sources.database import Database
from foretaste.data.sources.source import Source, sql_literal
from foretaste.data.spellings import NAMED, PAIR, find_spelling
from foretaste.errors import InputError, SettingError

_REFERENCE_MIN_INTERACTIONS = 20
_REFERENCE_MIN_INTERACTIONS_HELD_OUT = 5
_REFERENCE_MIN_RATING = 4.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings without ``auto``: a protocol, and the filters that apply."""

    protocol: str
    """``leave-one-out``, ``held-out-users``, ``temporal``, ``new-items``, ``unseen``, ``none``, or
    ``given`` for a given split."""

    label: str
    """The protocol as printed beside every metric."""

    filters: dict[str, float]
    """The filters that apply, by setting."""

    columns: dict[str, str]
    """The columns to read, by role."""

    has_validation: bool
    """True if a part is held out to choose the best epoch."""

    drops_unseen_targets: bool
    """True if held-out items that training never saw are dropped, as in the reference."""

    parts: tuple[str, ...]
    """The parts of a given split, training first; empty without a given split."""

    events: dict[str, float | None]
    """The weights of the kept event types; empty if all types are kept."""

    seen_events: tuple[str, ...]
    """The event types whose items lists leave out; their rows train nothing."""

    weight_scale: WeightScale | None
    """The scale of the weights; None if interactions have no weights."""

    is_by_rows: bool
    """True if the rows order the interactions of a user."""

    may_lack_times: bool
    """True if unreadable times are left out: nobody named the column, and the split uses none."""

    unread_times: str
    """The reason why the times are not read; empty if they are read, or without times."""

    has_test: bool = True
    """False if nothing is left to hold out for a test."""

    @property
    def has_order(self) -> bool:
        """True if times or rows order the interactions of a user."""
        return "time" in self.columns or self.is_by_rows

    @property
    def position(self) -> str:
        """SQL of the place in a history, as a further column; empty without an order."""
        return f", {POSITION_COLUMN}" if self.has_order else ""

    @property
    def weight(self) -> str:
        """SQL of the weight of a row."""
        factors = ["weight" if "weight" in self.columns else "CAST(1 AS DOUBLE)"]
        if self.events:
            cases = " ".join(
                f"WHEN {sql_literal(event)} THEN CAST({weight or 1.0!r} AS DOUBLE)"
                for event, weight in self.events.items()
            )
            factors.append(f"CASE event {cases} END")
        return " * ".join(factors)

    @property
    def held_parts(self) -> tuple[str, ...]:
        """All parts except the training part."""
        if self.parts or self.protocol == "none":
            return self.parts[1:]
        splits = ("validation",) * self.has_validation + ("test",) * self.has_test
        kinds = ("_fold_in", "_target") if self.protocol == "held-out-users" else ("",)
        return tuple(split + kind for split in splits for kind in kinds)

    @property
    def targets(self) -> dict[str, str]:
        """The names of the parts with the items to find, by split: ``validation``, ``test``."""
        parts = (part for part in self.held_parts if not part.endswith("_fold_in"))
        return {part.removesuffix("_target"): part for part in parts}


def make_plan(
    config: PrepareConfig,
    sources: Sequence[Source],
    parts: tuple[str, ...] = (),
    items: Source | None = None,
) -> Plan:
    """Find the columns in the first source, and resolve ``auto`` and the reference's filters.

    Raises InputError if a column is missing in any source. Raises SettingError if a setting needs
    an absent column, or contradicts a given split.
    """
    named = [role for role in NAMED if getattr(config, f"{role}_column") is not None]
    if isinstance(config.time_column, tuple):
        named.append("clock")
    found = find_columns(sources[0], config, (*PAIR, "rating", "time", *named), items)
    if config.order == "rows":
        _check_rows(config, sources)
        found = {role: name for role, name in found.items() if role not in ("time", "clock")}
    has_times = "time" in found
    protocol, has_validation = _split(config, parts, has_order=has_times or bool(config.order))
    _check_columns(config, protocol, found)
    filters = _filters(config, protocol, has_ratings="rating" in found)
    needed = {"user_id", "item_id", "time", "clock", *NAMED}
    if "min_rating" in filters:
        needed.add("rating")
    columns = {role: name for role, name in found.items() if role in needed}
    check_time_format(config, columns)
    # Times that nobody named and no protocol needs may be absent from some source.
    asked = (config.time_column, config.time_format, config.half_life)
    may_lack_times = protocol not in ("leave-one-out", "temporal") and asked == (None, None, None)
    unread_times = ""
    lacking = [source for source in sources if columns.get("time", "") not in source.columns]
    if may_lack_times and has_times and lacking:
        unread_times = f"{lacking[0].name} has no column {short_repr(columns.pop('time'))}"
    check_columns(sources, columns.values())
    if not has_times and not parts and config.protocol in ("auto", "leave-one-out", NEW_ITEMS):
        _refuse_later_times(sources)
    # Without an order a hash chooses what is left out, and the label says so.
    is_random = protocol == "leave-one-out" and not has_times and not config.order
    return Plan(
        protocol=protocol,
        label=RANDOM if is_random else protocol,
        filters=filters,
        columns=columns,
        has_validation=has_validation,
        drops_unseen_targets=config.filters == "reference" and protocol == "held-out-users",
        parts=parts,
        events=config.weight_of_event,
        seen_events=config.seen_events,
        weight_scale=(config.weight_scale or "linear") if config.gives_weights else None,
        is_by_rows=config.order == "rows",
        may_lack_times=may_lack_times,
        unread_times=unread_times,
    )


def _split(config: PrepareConfig, parts: tuple[str, ...], *, has_order: bool) -> tuple[str, bool]:
    """Return the protocol without ``auto``, and whether a part is held out to choose the epoch.

    Raises SettingError for a setting that contradicts a given split.
    """
    if not parts:
        auto = "leave-one-out" if has_order else "held-out-users"
        protocol = auto if config.protocol == "auto" else config.protocol
        has_validation = protocol not in (UNSEEN, "none") and config.validation == "hold-out"
        return protocol, has_validation
    has_validation = any(part.startswith("validation") for part in parts)
    if config.protocol != "auto":
        raise SettingError(
            f"protocol {config.protocol} would split a given split again; leave it out, or "
            "train on all parts with none"
        )
    if config.validation == "none" and has_validation:
        raise SettingError("validation is none, and a validation part is given; leave one out")
    return "given", has_validation


def _refuse_later_times(sources: Sequence[Source]) -> None:
    """Raise InputError for times the first source lacks: its split would ignore them."""
    for source in sources[1:]:
        if name := find_spelling(list(source.columns), "time", source.name):
            raise InputError(
                f"{sources[0].name}: has no column of times, and {source.name} has "
                f"{short_repr(name)}; "
                "give files with the same columns, or a protocol that needs no times, such as "
                "held-out-users"
            )


def _check_rows(config: PrepareConfig, sources: Sequence[Source]) -> None:
    """Raise SettingError unless the rows have one order: one file, frame or sorted query."""
    query = config.query or ""
    for is_wrong, problem in (
        (len(sources) > 1, f"{len(sources)} sources have no order among them"),
        (
            isinstance(sources[0], Database) and "order by" not in query.lower(),
            "a database has an order only with --query 'SELECT ... ORDER BY ...'",
        ),
    ):
        if is_wrong:
            raise SettingError(
                f"order is rows, for one file or frame whose rows are in order, and {problem}; "
                "leave one out"
            )


def _check_columns(config: PrepareConfig, protocol: str, found: dict[str, str]) -> None:
    time = found.get("time")
    # A rank orders the interactions of one user, and cannot compare two users.
    if protocol == "temporal" or config.half_life is not None:
        problem = None
        if config.order == "rows":
            problem = "the numbers of rows are ranks"
        elif time is None:
            problem = "there is no time column"
        elif is_rank(time):
            problem = f"{time!r} is a rank"
        if problem is not None:
            asked = "protocol temporal" if protocol == "temporal" else "half_life"
            raise SettingError(
                f"{asked} needs real times, and {problem}; name a column of them with "
                "--time-column (time_column=... in Python), or leave it out"
            )
    if config.num_heldout_users is not None and protocol != "held-out-users":
        raise SettingError(
            f"num_heldout_users belongs to protocol held-out-users, and this one is {protocol}; "
            "ask for --protocol held-out-users"
        )
    if protocol == NEW_ITEMS and config.features is None:
        raise SettingError(
            "protocol new-items needs features, because models list new items by their features; "
            "name columns of the items file: --items products.csv --features category "
            "(items=..., features=[...] in Python)"
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
    # A given setting replaces the reference's filter of that name.
    filters |= {name: value for name, value in given.items() if value is not None}
    return {name: filters[name] for name in names if name in filters}

"""What a preparation will do, once its settings have met the columns there are."""

from __future__ import annotations

from dataclasses import dataclass

from foretaste._util.formatting import shown
from foretaste.data.columns import Roles
from foretaste.data.config import PrepareConfig
from foretaste.data.manifest import RANDOM
from foretaste.errors import SettingError

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
    """Whether a part is held out for choosing the best epoch."""

    drops_unseen_targets: bool
    """Whether held-out items that training never saw are left out."""

    parts: tuple[str, ...]
    """The parts of a source that comes split, training first; none where it does not."""


def make_plan(config: PrepareConfig, roles: Roles, parts: tuple[str, ...] = ()) -> Plan:
    """Resolve ``auto`` and the reference's filters for a source with these columns and parts.

    Raises SettingError where a setting needs a column that is not there, or the source to be
    split otherwise than it is.
    """
    protocol: str = config.protocol
    if parts:
        _check_given(config, parts)
        protocol = "given"
    elif protocol == "auto":
        protocol = "held-out-users" if roles.time is None else "leave-one-out"
    _check(config, protocol, roles)
    filters = _filters(config, protocol, roles)
    needed = {"user_id", "item_id"}
    if "min_rating" in filters:
        needed.add("rating")
    if protocol in ("leave-one-out", "temporal"):
        needed.add("time")
    columns = {role: name for role, name in roles.used().items() if role in needed}
    if config.time_format is not None and "time" not in columns:
        raise SettingError(_reads_no_times(config.time_format, protocol, roles))
    is_random = protocol == "leave-one-out" and roles.time is None
    return Plan(
        protocol=protocol,
        label=RANDOM if is_random else protocol,
        filters=filters,
        columns=columns,
        has_validation=(
            any(part.startswith("validation") for part in parts)
            if parts
            else protocol != "none" and config.validation == "hold-out"
        ),
        drops_unseen_targets=_drops_unseen_targets(config, protocol),
        parts=parts,
    )


def _check_given(config: PrepareConfig, parts: tuple[str, ...]) -> None:
    if config.protocol != "auto":
        raise SettingError(
            f"protocol {config.protocol} would split what is split already; leave it out, or train "
            "on all of it with none"
        )
    if config.validation == "none" and any(part.startswith("validation") for part in parts):
        raise SettingError("validation is none, and a validation part is given; leave one out")


def _check(config: PrepareConfig, protocol: str, roles: Roles) -> None:
    if protocol == "temporal" and (roles.time is None or roles.time_is_rank):
        found = "there is no time column" if roles.time is None else f"{roles.time!r} is a rank"
        raise SettingError(
            f"protocol temporal needs real times, and {found}; "
            "name one with --time-column (time_column=... in Python) or use another protocol"
        )
    if config.num_heldout_users is not None and protocol != "held-out-users":
        raise SettingError(
            f"num_heldout_users belongs to protocol held-out-users, and this one is {protocol}; "
            "ask for --protocol held-out-users"
        )
    if config.min_rating is not None and roles.rating is None:
        raise SettingError(
            "min_rating needs a rating column, and none is found; "
            "name it with --rating-column (rating_column=... in Python)"
        )


def _reads_no_times(format: str, protocol: str, roles: Roles) -> str:
    """What is said of a format of times where none are read."""
    if roles.time is None:
        why = "there is no time column; name one with --time-column (time_column=... in Python) or"
    else:
        split = "a split that is given" if protocol == "given" else f"protocol {protocol}"
        why = f"{split} reads no times;"
    return f"time_format is {shown(format)}, and {why} leave it out"


def _drops_unseen_targets(config: PrepareConfig, protocol: str) -> bool:
    if config.unseen_targets == "auto":
        return config.filters == "reference" and protocol == "held-out-users"
    return config.unseen_targets == "drop"


def _filters(config: PrepareConfig, protocol: str, roles: Roles) -> dict[str, float]:
    asked = {
        "min_rating": config.min_rating,
        "min_item_users": config.min_item_users,
        "min_user_interactions": config.min_user_interactions,
    }
    defaults: dict[str, float] = {}
    if config.filters == "reference":
        defaults["min_user_interactions"] = _REFERENCE_MIN_INTERACTIONS
        if protocol == "held-out-users":
            defaults["min_user_interactions"] = _REFERENCE_MIN_INTERACTIONS_HELD_OUT
            if roles.rating is not None:
                defaults["min_rating"] = _REFERENCE_MIN_RATING
    chosen = {name: defaults.get(name) if value is None else value for name, value in asked.items()}
    return {name: value for name, value in chosen.items() if value is not None}

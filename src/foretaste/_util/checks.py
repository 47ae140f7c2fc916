"""Checks of settings, and how their messages read: the setting, its value, what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from foretaste.errors import SettingError

Settings = TypeVar("Settings")

_LONGEST_SHOWN = 200


def shown(value: object) -> str:
    """A value as a message shows it: quoted, on one line, and not at full length if it is long."""
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        return f"{value[:_LONGEST_SHOWN]!r}... ({len(value):,} characters)"
    return repr(value)


def check_whole(
    name: str, value: Any, *, at_least: int, below: int | None = None, or_auto: bool = False
) -> None:
    """SettingError unless ``value`` is an integer in range, or ``auto`` where that is allowed."""
    if value == "auto" and or_auto:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise SettingError(
            f"{name} is {_with_kind(value)}; it must be a whole number, at least {at_least}"
        )
    check_number(name, value, at_least=at_least, below=below)


def check_number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    or_auto: bool = False,
) -> None:
    """SettingError unless ``value`` is finite and in range, or ``auto`` where that is allowed."""
    if value == "auto" and or_auto:
        return
    bounds = [("at least", at_least), ("above", above), ("below", below), ("at most", at_most)]
    allowed = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingError(f"{name} is {_with_kind(value)}; it must be a number {allowed}")
    if (
        not math.isfinite(value)
        or (at_least is not None and value < at_least)
        or (above is not None and value <= above)
        or (below is not None and value >= below)
        or (at_most is not None and value > at_most)
    ):
        raise SettingError(f"{name} is {value}; it must be {allowed}")


def _with_kind(value: object) -> str:
    """A value that may look like a number, and what it is instead."""
    if isinstance(value, bool | int | float):
        return str(value)
    kind = "text" if isinstance(value, str) else f"of type {type(value).__name__}"
    return f"{shown(value)}, which is {kind}"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """SettingError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise SettingError(f"{name} is {value!r}; use {' or '.join(allowed)}")


def check_sequence(name: str, value: Any) -> None:
    """SettingError unless ``value`` is a tuple, a list or the like, even of one value."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise SettingError(f"{name} is {value!r}; give a sequence: {name}=({value!r},)")


def check_kind(name: str, value: object, kind: type[Any]) -> None:
    """SettingError unless ``value`` is an instance of ``kind``, a class of settings."""
    if not isinstance(value, kind):
        raise SettingError(
            f"{name} must be {kind.__name__}(...), with settings by name; "
            f"got one of type {type(value).__name__}"
        )


def given_or_default(name: str, given: Settings | None, kind: type[Settings]) -> Settings:
    """The settings that were ``given``, which must be of a kind; all defaults where none were."""
    if given is None:
        return kind()
    check_kind(name, given, kind)
    return given

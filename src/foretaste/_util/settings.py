"""Validation of settings by their type hints, in configs, parameters and documents.

A frozen dataclass calls ``check_settings(self)`` in ``__post_init__``; its fields need no more::

    epochs: Annotated[int | Literal["auto"], Range(at_least=1)] = "auto"

Clear equivalents are converted: NumPy's numbers, an integer for a float, text for a path, a list
for a tuple, a number for a list of one. Any other value raises a SettingError with the setting, its
value, and the allowed values. True is no number, "no" is no flag; NaN and infinity are no numbers.
"""

# Tried before: pydantic's dataclasses. Lax, they take "no" for False and True for 1; strict, they
# refuse lists, text paths and NumPy's integers; and their import takes 0.13 s.

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from operator import ge, gt, le, lt
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from foretaste._util.formatting import short_repr, without_secrets
from foretaste.errors import SettingError

Settings = TypeVar("Settings")


@dataclass(frozen=True, kw_only=True)
class Range:
    """The range of a number, or of each number of a list, for use in ``Annotated``."""

    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    at_most: float | None = None

    def _bounds(self) -> list[tuple[str, Callable[[float, float], bool], float]]:
        """Return words, comparison and value of each bound."""
        bounds = (
            ("of at least", ge, self.at_least),
            ("above", gt, self.above),
            ("below", lt, self.below),
            ("at most", le, self.at_most),
        )
        return [(words, holds, bound) for words, holds, bound in bounds if bound is not None]

    def holds(self, number: float) -> bool:
        """Return True for a number in the range."""
        return all(holds(number, bound) for _, holds, bound in self._bounds())

    def __str__(self) -> str:
        return " and".join(
            f" {words} {'2^63' if bound == 2**63 else f'{bound:,}'}"
            for words, _, bound in self._bounds()
        )


_ANY = Range()

Count = Annotated[int, Range(at_least=1)]
"""A number of at least 1."""

# More threads are a slip of the hand, and their stacks would take all memory.
Threads = Annotated[int, Range(at_least=1, at_most=1024)]

Seed = Annotated[int, Range(at_least=0, below=2**63)]


class _UnfitError(Exception):
    """A value does not fit a hint."""


def non_defaults(settings: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, with their values."""
    defaults = asdict(type(settings)())
    return {name: value for name, value in asdict(settings).items() if value != defaults[name]}


def check_settings(settings: object) -> None:
    """Convert every field of a dataclass to its type hint; SettingError if one does not fit."""
    kind: Any = type(settings)  # hashable, which mypy does not see
    for name, hint in _hints(kind).items():
        value = getattr(settings, name)
        converted = validate(name, value, hint)
        if converted is not value:
            object.__setattr__(settings, name, converted)  # the dataclass may be frozen


@overload
def validate(name: str, value: object, hint: type[Settings]) -> Settings: ...
@overload
def validate(name: str, value: object, hint: Any) -> Any: ...
def validate(name: str, value: object, hint: Any) -> Any:
    """``value`` converted to the type hint; SettingError if it does not fit."""
    try:
        return _convert(value, hint, _ANY)
    except _UnfitError:
        raise setting_error(name, value, _describe_allowed(hint, _ANY)) from None


def setting_error(name: str, value: object, allowed: str) -> SettingError:
    """Return the error of a setting, with its name, its value and the allowed values."""
    return SettingError(f"{name} is {short_repr(value)}; it must be {allowed}")


def given_or_default(name: str, given: Settings | None, kind: type[Settings]) -> Settings:
    """Return the ``given`` settings, checked to be of class ``kind``; its defaults if None."""
    return kind() if given is None else validate(name, given, kind)


def from_document(kind: type[Settings], document: Mapping[str, object]) -> Settings:
    """Return a dataclass, with nested ones, from a JSON object.

    Raises SettingError for a value that is missing, unknown or does not fit its field.
    """
    dataclass_type: Any = kind
    hints = _hints(dataclass_type)
    for item in fields(dataclass_type):
        is_needed = item.default is MISSING and item.default_factory is MISSING
        if is_needed and item.name not in document:
            raise SettingError(f"{item.name} is missing")
    if unknown := [name for name in document if name not in hints]:
        raise SettingError(f"{short_repr(unknown[0])} is unknown")
    return kind(**{name: _build(value, hints[name]) for name, value in document.items()})


def to_document(value: object) -> Any:
    """Return settings as JSON values: dataclasses as objects, paths as text, no secrets."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_document(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_document(member) for name, member in value.items()}
    if isinstance(value, tuple | list):
        return [to_document(member) for member in value]
    return without_secrets(str(value)) if isinstance(value, str | Path) else value


def fields_of(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``values`` that are fields of ``kind``."""
    return {item.name: values[item.name] for item in fields(kind) if item.name in values}


def _build(value: object, hint: object) -> object:
    """``value`` with its JSON objects turned into the dataclasses of the hint."""
    if not isinstance(value, dict):
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        return from_document(hint, value)
    if inner := get_args(hint):
        return {name: _build(member, inner[-1]) for name, member in value.items()}
    return value


@cache  # `get_type_hints` takes 0.2 ms, and a config is built at every read
def _hints(kind: Any) -> dict[str, object]:
    hints = get_type_hints(kind, include_extras=True)
    return {item.name: hints[item.name] for item in fields(kind)}


def _convert(value: object, hint: Any, allowed: Range) -> object:
    """``value`` converted to ``hint``, with numbers in range; _UnfitError if it does not fit."""
    if hint is Any:
        return value
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return _convert(value, inner[0], _range(inner, allowed))
    if origin in (Union, UnionType):
        for arm in inner:
            with suppress(_UnfitError):
                return _convert(value, arm, allowed)
        raise _UnfitError
    numpy = sys.modules.get("numpy")  # a scalar of NumPy exists only once NumPy is imported
    if numpy and isinstance(value, numpy.generic):
        value = value.item()
    if origin is Literal:
        for choice in inner:
            if isinstance(value, type(choice)) and value == choice:
                return choice
        raise _UnfitError
    if origin in (tuple, list):
        members = _members(value)
        if origin is tuple and Ellipsis not in inner and len(members) != len(inner):
            raise _UnfitError
        return origin(_convert(member, inner[0], allowed) for member in members)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping) or not all(isinstance(name, inner[0]) for name in value):
            raise _UnfitError
        return {name: _convert(member, inner[1], allowed) for name, member in value.items()}
    if origin in (int, float):
        return _number(value, origin, allowed)
    if origin is Path and isinstance(value, str | Path) and value != "":
        return Path(value)  # not of "", which Path takes for the working directory
    if isinstance(value, origin):
        return value
    raise _UnfitError


def _range(annotated: tuple[object, ...], otherwise: Range) -> Range:
    return next((extra for extra in annotated[1:] if isinstance(extra, Range)), otherwise)


def _members(value: object) -> list[object]:
    """Return the members of a value that is given for a list; a set has no order and is refused."""
    if isinstance(value, Real):
        return [value]
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | Set):
        raise _UnfitError
    return list(value)


def _number(value: object, kind: Any, allowed: Range) -> float:
    # True is an Integral in Python, and cyclopts reads nan and 1e400 as floats.
    if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
        raise _UnfitError
    number: float = kind(value)
    if (kind is float and not math.isfinite(number)) or not allowed.holds(number):
        raise _UnfitError
    return number


_NAMES = {
    bool: ("True or False", "True or False"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "text"),
    Path: ("a path", "paths"),
    Any: ("anything", "anything"),
}
"""Words for values of a type, in singular and plural."""


def _describe_allowed(hint: Any, allowed: Range, *, many: bool = False) -> str:
    """Return the values that a hint allows, in words, without None, which means not given."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return _describe_allowed(inner[0], _range(inner, allowed), many=many)
    if origin in (Union, UnionType):
        arms = [arm for arm in inner if arm is not NoneType]
        return " or ".join(_describe_allowed(arm, allowed, many=many) for arm in arms)
    if origin is Literal:
        *others, last = map(str, inner)
        return f"{', '.join(others)} or {last}" if others else last
    if origin in (tuple, list):
        length = f"{len(inner)} " if origin is tuple and Ellipsis not in inner else ""
        return f"a list of {length}{_describe_allowed(inner[0], allowed, many=True)}"
    if origin in (dict, Mapping):
        return f"an object of {_describe_allowed(inner[1], allowed, many=True)}"
    if isinstance(origin, type) and is_dataclass(origin):
        return f"{origin.__name__}(...), with settings by name"
    if origin not in _NAMES:
        return f"a {origin.__name__}"
    return f"{_NAMES[origin][many]}{allowed if origin in (int, float) else ''}"

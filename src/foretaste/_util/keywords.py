"""Settings given by name, and the configs that they belong to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import foretaste
from foretaste._util.formatting import spelled_like
from foretaste._util.settings import checked
from foretaste.errors import SettingError


def routed(
    function: Callable[..., Any],
    arguments: Mapping[str, tuple[type[Any], Any]],
    settings: Mapping[str, Any],
) -> list[Any]:
    """The configs of the arguments of ``function``, with ``settings`` assigned to their fields.

    ``arguments`` maps the name for messages to the class of a config and the given config or None.
    A setting goes to the first class that has such a field, and replaces the value of a given
    config. Without config and settings an argument stays None. Raises SettingError for a setting
    that no class has, with the class it belongs to or the name that was meant.
    """
    kinds = [kind for kind, _ in arguments.values()]
    for name in settings:
        if not any(name in _names(kind) for kind in kinds):
            raise SettingError(_misplaced(name, function, kinds))
    left = dict(settings)
    configs = []
    for argument, (kind, given) in arguments.items():
        own = {name: left.pop(name) for name in _names(kind) if name in left}
        if given is not None:
            given = checked(argument, given, kind)
            configs.append(replace(given, **own) if own else given)
        else:
            configs.append(kind(**own) if own else None)
    return configs


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def _misplaced(name: str, function: Callable[..., Any], kinds: Sequence[type[Any]]) -> str:
    """The message about a setting that belongs to another function, is misspelled or unknown."""
    begin = f"{function.__name__} has no setting {name!r} here"
    public = [getattr(foretaste, each) for each in dir(foretaste) if each.endswith("Config")]
    if owners := [kind.__name__ for kind in public if name in _names(kind)]:
        *others, last = owners
        return f"{begin}: it belongs to {', '.join(others)}{' and ' if others else ''}{last}"
    known = [*inspect.signature(function).parameters, *(n for kind in kinds for n in _names(kind))]
    if meant := spelled_like(name, known, similarity=0.7):
        return f"{begin}; did you mean {meant[0]}?"
    return f"{begin}; it takes those of {', '.join(k.__name__ for k in kinds if k in public)}"

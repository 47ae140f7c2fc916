"""Settings given by name, each handed to the config whose field it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

import foretaste
from foretaste._util.settings import checked
from foretaste.errors import SettingError

_OTHER_NAMES = {
    ("train", "lr"): "did you mean learning_rate?",
    ("train", "run"): "did you mean run_path?",
    ("train", "output"): "did you mean run_path?",
    ("train", "items"): "prepare the data first: foretaste.prepare(source, items=...)",
    ("train", "like"): "only the command line repeats a run: foretaste train --like RUN DATASET",
}
"""Names that other programs, or the command line, have for an argument of a function."""


@dataclass(frozen=True)
class ConfigArgument:
    """An argument that takes a config."""

    name: str
    """As messages call it."""

    kind: type[Any]
    """The class of the config."""

    given: Any
    """The config that was given; None where none was."""

    def with_settings(self, settings: Mapping[str, Any]) -> Any:
        """The config, with these values in place of its own; None without either."""
        if self.given is None:
            return self.kind(**settings) if settings else None
        given = checked(self.name, self.given, self.kind)
        return replace(given, **settings) if settings else given


def routed(
    function: Callable[..., Any], arguments: Sequence[ConfigArgument], settings: Mapping[str, Any]
) -> list[Any]:
    """The config of each argument of ``function``, with the ``settings`` that are its fields.

    A setting that several configs have goes to the first of them, and replaces what a given config
    says. Raises SettingError for one that none has: where it belongs, or which was meant.
    """
    left = dict(settings)
    own = [
        {name: left.pop(name) for name in _names(argument.kind) if name in left}
        for argument in arguments
    ]
    for name in left:
        raise SettingError(_misplaced(name, function, [argument.kind for argument in arguments]))
    return [argument.with_settings(mine) for argument, mine in zip(arguments, own, strict=True)]


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def _misplaced(name: str, function: Callable[..., Any], kinds: Sequence[type[Any]]) -> str:
    """Why a setting has no place: it belongs elsewhere, is misspelled, or is none at all."""
    begin = f"{function.__name__} has no setting {name!r} here"
    owners = [kind.__name__ for kind in _public_configs() if name in _names(kind)]
    if owners:
        return f"{begin}: it belongs to {' and '.join(owners)}"
    if (function.__name__, name) in _OTHER_NAMES:
        return f"{begin}; {_OTHER_NAMES[function.__name__, name]}"
    known = [*inspect.signature(function).parameters, *(n for kind in kinds for n in _names(kind))]
    if meant := get_close_matches(name, known, n=1, cutoff=0.7):
        return f"{begin}; did you mean {meant[0]}?"
    public = [kind.__name__ for kind in kinds if kind.__name__ in foretaste.__all__]
    return f"{begin}; it takes those of {', '.join(public)}"


def _public_configs() -> list[type[Any]]:
    """Every config class that users know."""
    return [getattr(foretaste, name) for name in foretaste.__all__ if name.endswith("Config")]

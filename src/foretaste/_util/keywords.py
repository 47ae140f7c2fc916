"""Keywords of the verbs: fields of a request, and settings of the configs that are its parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

import foretaste
from foretaste._util.formatting import similar_names
from foretaste._util.other_names import translate_name
from foretaste._util.settings import validate
from foretaste.errors import SettingError


def assign_settings(
    verb: str, given: Mapping[str, Any], names: Collection[str], parts: Mapping[str, type[Any]]
) -> dict[str, Any]:
    """``given`` with its settings assigned to configs, and without the names that are None.

    ``names`` are the keywords of ``verb`` that are no settings. ``parts`` maps the names of its
    configs, which may be given too, to their classes. A setting goes to the first class with a
    field of its name, and replaces the value of a given config. A config that nothing is given for
    is left out. Raises SettingError for a setting that no class has, with the class that has it or
    the name that was meant.
    """
    of_parts = {name: [item.name for item in fields(kind)] for name, kind in parts.items()}
    known = [*names, *parts, *(name for own in of_parts.values() for name in own)]
    for name in given:
        if name not in known:
            raise SettingError(_explain_misplaced(name, verb, known, parts.values()))
    left = {name: value for name, value in given.items() if name not in names and name not in parts}
    assigned = {name: given[name] for name in names if given.get(name) is not None}
    for part, kind in parts.items():
        own = {name: left.pop(name) for name in of_parts[part] if name in left}
        if (config := given.get(part)) is not None:
            assigned[part] = replace(validate(part, config, kind), **own)
        elif own:
            assigned[part] = kind(**own)
    return assigned


def _explain_misplaced(
    name: str, verb: str, known: Collection[str], kinds: Collection[type[Any]]
) -> str:
    """Return the message about a setting that belongs to another verb, is misspelled or unknown."""
    begin = f"{verb} has no setting {name!r} here"
    if there := translate_name(name, known):
        return f"{begin}; did you mean {there}?"
    public = [getattr(foretaste, each) for each in dir(foretaste) if each.endswith("Config")]
    owners = [kind.__name__ for kind in public if name in {item.name for item in fields(kind)}]
    if owners:
        *others, last = owners
        return f"{begin}: it belongs to {', '.join(others)}{' and ' if others else ''}{last}"
    if meant := similar_names(name, known, similarity=0.7):
        return f"{begin}; did you mean {meant[0]}?"
    takes = [kind.__name__ for kind in kinds if kind in public] or known
    return f"{begin}; it takes {'those of ' if kinds else ''}{', '.join(takes)}"

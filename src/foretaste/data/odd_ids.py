"""Ids that are kept as they are written, and may not have been meant so."""

from __future__ import annotations

from collections.abc import Mapping

from foretaste._util.formatting import shown
from foretaste.data.bad_values import like_it
from foretaste.data.casts import Kind
from foretaste.data.engine import Engine

# How such an id is told, and what is said of it.
_ODD = (
    ("regexp_full_match({id}, '-?[0-9]+[.]0+')", "is an integer written as a float"),
    ("{id} <> trim({id})", "has spaces around it"),
)
_LABELS = {"user_id": "user ids", "item_id": "item ids"}


def describe_odd_ids(engine: Engine, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """What is said of ids in table ``raw`` that are text for how their numbers are written, by
    whose ids they are; empty where there are none."""
    notes = {}
    for role, label in _LABELS.items():
        found = _found(engine, role) if kinds[role] == "text" else []
        if found:
            notes[label] = f"kept as text: {'; '.join(found)}"
    return notes


def _found(engine: Engine, role: str) -> list[str]:
    found = []
    for condition, what in _ODD:
        odd = condition.format(id=role)
        count, example = engine.row(f"SELECT count(*), min({role}) FROM raw WHERE {odd}")
        if count:
            found.append(f"{shown(example)} {what} ({like_it(count, 'row')})")
    return found

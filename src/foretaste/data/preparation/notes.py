"""Notes on ids that another program changed, that mean nobody, or that look alike."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from foretaste._util.formatting import pluralize, short_repr
from foretaste.data.config import PrepareConfig
from foretaste.data.ids import group_by_form
from foretaste.data.preparation.casts import cast, literals
from foretaste.data.preparation.reading import Raw
from foretaste.data.sources.source import Column, sql_literal

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_LABELS = {"user_id": "user ids", "item_id": "item ids"}

_MONTHS = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_UNSEEN = r"[\s\p{Z}\x{AD}\x{200B}-\x{200F}\x{2060}\x{FEFF}]"
_PROBLEMS = {
    "-?[0-9]+[.]0+": "is an integer written as a float",
    "-?[0-9]([.,][0-9]+)?[eE][+][0-9]+": "is rounded, as spreadsheets round long numbers: "
    "different ids have become one; export them as text",
    "#(REF!|N/A|NAME[?]|VALUE!|DIV/0!|NUM!|NULL!|BEZUG!|WERT!|NV)|###+": "is an error of a "
    "spreadsheet: the id is lost",
    f"[0-9]{{1,2}}-{_MONTHS}|{_MONTHS}-[0-9]{{2}}": "is a date, as spreadsheets make of codes such "
    "as MAR1; export them as text",
    '="[^"]+"': "is a formula, which spreadsheets show as {inner}",
    "'.+": "begins with a mark of text, and spreadsheets show {inner}",
    '(?s)".*"': "has quotes around it; --quote double, or --quote backslash, takes quotes off",
    r"(?s).*[\[\]{}].*|[^ ]*[0-9][^ ]*( +[^ ]*[0-9][^ ]*)+": "looks like several ids in one field",
    f"(?s){_UNSEEN}.*|.*{_UNSEEN}": "has spaces or invisible characters around it",
}
"""The problem of an id, by the pattern that matches the whole id."""

_MOST_ODD_IDS = 10
_ODD_SHARE = 0.01
"""A note appears if only the ids of at most this share of the rows make a column text."""

_LEAST_USERS = 100
_LARGE_SHARE, _TIMES_THE_NEXT = 0.05, 10
"""A note names a user with a larger share of the rows, and this many times the next user's rows."""

LONG_HISTORY = 10_000
"""Most items of a history that models of item pairs count."""

_MAY_NOT_BE_NFC = r"(?s).*[\p{M}\x{1100}-\x{11FF}\x{2126}-\x{212B}\x{F900}-\x{FAFF}].*"


def describe_ids(
    engine: Engine, raw: Raw, columns: Mapping[str, str], config: PrepareConfig
) -> dict[str, str]:
    """Return notes on the ids in table ``raw``; empty without problems."""
    notes: dict[str, str] = {}
    for role, label in _LABELS.items():
        if raw.kinds[role] != "text":
            continue
        engine.make("seen", f"SELECT {role} AS id, count(*) AS num_rows FROM raw GROUP BY {role}")
        problems = [*problems_of(engine, "seen"), *_describe_spelled_twice(engine)]
        is_auto = getattr(config, f"{role}_type") == "auto"
        found = _odd_ids(engine, raw, columns[role]) if is_auto else []
        if problems:
            found.append(f"kept as text: {'; '.join(problems)}")
        if found:
            notes[label] = "; ".join(found)
        engine.drop("seen")
    return notes


def problems_of(engine: Engine, ids: str) -> list[str]:
    """Return the problems of the text ids in column ``id`` of a table with ``num_rows``."""
    selected = []
    for pattern in _PROBLEMS:
        where = engine.sql.matches.format(text="id", pattern=pattern.replace("'", "''"))
        selected.append(f"sum(CASE WHEN {where} THEN num_rows END)")
        selected.append(f"min(CASE WHEN {where} THEN id END)")
    values = engine.row(f"SELECT {', '.join(selected)} FROM {ids}")
    return [
        f"{short_repr(example)} "
        f"{problem.replace('{inner}', example.strip(chr(34) + chr(39) + '='))} "
        f"({pluralize(int(count), 'row')} like it)"
        for problem, count, example in zip(
            _PROBLEMS.values(), values[::2], values[1::2], strict=True
        )
        if count
    ]


def _odd_ids(engine: Engine, raw: Raw, column: str) -> list[str]:
    """Return the note on the few ids that alone make a column text, if any."""
    integer = cast(engine.sql, Column(sql="id", storage="text", type_name="text"), "integer")
    num_rows = engine.count("raw")
    num_odd, num_ids, first = engine.row(
        f"SELECT coalesce(sum(num_rows), 0), count(*), min(id) FROM seen WHERE {integer} IS NULL"
    )
    if not 0 < num_odd <= _ODD_SHARE * num_rows or num_ids > _MOST_ODD_IDS:
        return []
    are_none = "is not an integer" if num_odd == 1 else "are not integers"
    place = engine.find_value(raw.sources, column, "text", sql_literal(first)).place
    # The note omits the folder, which differs from machine to machine.
    return [
        f"are text, because {int(num_odd):,} of {num_rows:,} values {are_none}: "
        f"{short_repr(first)} ({Path(place).name})"
    ]


def describe_most_active(engine: Engine) -> dict[str, str]:
    """Return notes on a user who may be many people or nobody, and on users with long histories."""
    num_users, num_rows, most, num_long = engine.row(
        "SELECT count(*), sum(num_rows), max(num_rows), "
        f"count(CASE WHEN num_rows > {LONG_HISTORY} THEN 1 END) FROM user_codes"
    )
    is_large = num_users >= _LEAST_USERS and most > _LARGE_SHARE * int(num_rows)
    if not is_large and not num_long:
        return {}
    num_near, user_id = engine.row(
        f"SELECT count(*), max(CASE WHEN num_rows = {most} THEN user_id END) FROM user_codes "
        f"WHERE num_rows * {_TIMES_THE_NEXT} > {most}"
    )
    notes = {}
    # The only user near the maximum is the most active user: nobody else comes close.
    if is_large and num_near == 1:
        notes["most active user"] = (
            f"user {short_repr(user_id)} has {most / int(num_rows):.0%} of the rows; if that is "
            f"nobody, --empty-ids drop with --empty-values {shlex.quote(str(user_id))} leaves "
            "these rows out"
        )
    if num_long:
        notes["long histories"] = (
            f"{pluralize(num_long, 'user')} with more than {LONG_HISTORY:,} rows, user "
            f"{short_repr(user_id)} with {most:,}; models of pairs of items count {LONG_HISTORY:,} "
            "of a history"
        )
    return notes


def _describe_spelled_twice(engine: Engine) -> list[str]:
    """Return the note on ids that differ in their Unicode form alone, if any."""
    where = engine.sql.matches.format(text="id", pattern=_MAY_NOT_BE_NFC)
    spellings = group_by_form(id for (id,) in engine.run(f"SELECT id FROM seen WHERE {where}"))
    forms = list(spellings)
    # Several queries, because one with all forms could be too long.
    for start in range(0, len(forms), 1000):
        listed = literals(forms[start : start + 1000])
        for (form,) in engine.run(f"SELECT id FROM seen WHERE id IN ({listed})"):
            spellings[form].append(form)
    twins = [sorted({*ids}) for ids in spellings.values() if len({*ids}) > 1]
    if not twins:
        return []
    first, second, *_ = min(twins)
    return [
        f"{first!a} and {second!a} are two ids, which differ in their Unicode form alone "
        f"({pluralize(len(twins), 'id')} like it)"
    ]

"""SQL that casts stored values to a kind; NULL for a value that does not fit the kind.

Times serve comparisons only. Dates and times become microseconds since 1970. Numbers become
integers, or floating point if some of them are no integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from foretaste.data.config import IdType
from foretaste.data.ids import MAX_BYTES
from foretaste.data.sources.source import Column, Storage, sql_literal

Kind = Literal["short", "integer", "real", "text", "moment", "instant"]
"""The kind of value in a column. ``short`` are integers of 32 bits, in half the memory of others.

``moment`` are dates and times without a UTC offset, ``instant`` dates and times with one.
"""

KINDS: dict[str, tuple[tuple[Kind, ...], ...]] = {
    "user_id": (("short", "integer", "text"),),
    "item_id": (("short", "integer", "text"),),
    "rating": (("real",),),
    "time": (("short", "integer", "real"), ("moment",), ("instant",)),
    "weight": (("real",),),
    "event": (("text",),),
}
"""The possible kinds for a column of each role. A value that fits one kind of a tuple fits all
kinds after it."""

KINDS_OF_IDS: dict[IdType, tuple[tuple[Kind, ...], ...]] = {
    "auto": KINDS["user_id"],
    "integer": (("short", "integer"),),
    "text": (("text",),),
}
"""The possible kinds of ids, by the setting of their type."""

# Other abbreviations are refused: several zones share one, and DuckDB reads BST as Bangladesh's.
_ZONE = "([-+][0-9:]+|Z|UTC|GMT|[A-Za-z_]+/.*)"
_LARGEST = "1.7976931348623157e308"

EMPTY_IDS = ("", '=""', "'")
"""Texts that are no id: spreadsheets write them for an empty cell."""

_NULLS: dict[Kind, str] = {"text": "STRING", "real": "DOUBLE"}


@dataclass(frozen=True, kw_only=True)
class Spellings:
    """SQL that engines spell differently; ``str.format`` fills in the names in braces."""

    matches: str
    """True if all of ``text`` matches a ``pattern``."""

    each: str
    """One row for each element of the list ``values``, in the columns of a query."""

    split: str
    """List of the parts of ``text`` between the signs ``mark``, a SQL literal."""

    num_bytes: str
    """The number of bytes of ``text`` in UTF-8."""

    micros: str
    """Microseconds since 1970 of a ``value`` that is a date or time. ``type`` is TIMESTAMP for a
    value without a time zone, and TIMESTAMPTZ for a value with a zone."""


def cast(sql: Spellings, column: Column, kind: Kind) -> str:
    """Return SQL of a column as ``kind``: NULL for a value that does not fit the kind."""
    name, storage = column.sql, column.storage
    if storage == "text":
        return _cast_text(sql, name, kind)
    real = f"CAST({name} AS DOUBLE)"
    short, integer = f"TRY_CAST({name} AS INTEGER)", f"TRY_CAST({name} AS BIGINT)"
    # Integer ids of a frame become floats if one is missing. Above this bound several integers
    # become the same float, so a larger float is no id.
    end = {"halffloat": 2**11, "float": 2**24}.get(column.type_name, 2**53)
    whole = f"CASE WHEN abs({name}) < {end} AND floor({name}) = {name} THEN {{}} END"
    exact = f"CASE WHEN floor({name}) = {name} THEN {{}} END"
    casts: dict[tuple[Storage, Kind], str] = {
        ("integer", "short"): short,
        ("integer", "integer"): integer,
        ("integer", "text"): f"CAST({name} AS STRING)",
        ("integer", "real"): real,
        ("real", "short"): whole.format(short),
        ("real", "integer"): whole.format(integer),
        ("real", "text"): whole.format(f"CAST({integer} AS STRING)"),
        ("real", "real"): _finite(real),
        ("decimal", "short"): exact.format(short),
        ("decimal", "integer"): exact.format(integer),
        ("decimal", "text"): exact.format(f"CAST(CAST({name} AS DECIMAL(38, 0)) AS STRING)"),
        ("decimal", "real"): real,
        ("wide", "real"): _finite(real),
        ("moment", "moment"): sql.micros.format(value=name, type="TIMESTAMP"),
        ("instant", "instant"): sql.micros.format(value=name, type="TIMESTAMPTZ"),
        ("uuid", "text"): f"CAST({name} AS STRING)",
        ("truth", "text"): f"CAST({name} AS STRING)",
    }
    return casts.get((storage, kind), f"CAST(NULL AS {_NULLS.get(kind, 'BIGINT')})")


def _cast_text(sql: Spellings, name: str, kind: Kind) -> str:
    # A bare TRY_CAST of the column fails: DuckDB moves it into its CSV reader, in which it fails
    # like CAST.
    text = f"nullif({name}, '')"
    if kind in ("moment", "instant"):
        return _cast_time(sql, name, text, kind)
    short, integer = f"TRY_CAST({name} AS INTEGER)", f"TRY_CAST({name} AS BIGINT)"
    return {
        # The cast alone turns 007 into 7, 1_000 into 1000 and 77.5 into 78. Only text that the
        # integer gives back is an integer.
        "short": f"CASE WHEN CAST({short} AS STRING) = {name} THEN {short} END",
        "integer": f"CASE WHEN CAST({integer} AS STRING) = {name} THEN {integer} END",
        # A dictionary of Parquet holds long text once; a table of rows would hold each copy.
        "text": f"CASE WHEN {name} NOT IN ({literals(EMPTY_IDS)}) AND "
        f"{sql.num_bytes.format(text=name)} <= {MAX_BYTES} THEN {name} END",
        "real": _finite(f"TRY_CAST({text} AS DOUBLE)"),
    }[kind]


def _cast_time(sql: Spellings, name: str, text: str, kind: Kind) -> str:
    # Only DuckDB's spelling is needed: the other engine reads no times that are text.
    # TRY_CAST to TIMESTAMP reads 31/12/20 as the year 31, and silently drops everything after the
    # seconds: offsets, PM, junk. So the pattern refuses these first.
    date = " *[0-9]{4}[^:]*"
    clock = f"{date}:[0-9:]*([.][0-9]*)?"
    if kind == "instant":
        pattern = f"{clock} ?{_ZONE} *"
        instant = f"replace(replace(rtrim({text}), ' +', '+'), ' -', '-')"
        micros = f"epoch_us(TRY_CAST({instant} AS TIMESTAMPTZ))"
    else:
        pattern = f"{clock} *|{date}"
        micros = f"epoch_us(TRY_CAST({text} AS TIMESTAMP))"
    return f"CASE WHEN {sql.matches.format(text=name, pattern=pattern)} THEN {micros} END"


def _finite(real: str) -> str:
    # NaN is the largest number in SQL: NaN >= 4 is true, so it would pass a filter on ratings.
    return f"CASE WHEN abs({real}) <= {_LARGEST} THEN {real} END"


def literals(texts: Iterable[str]) -> str:
    """Return texts as a list of SQL literals."""
    return ", ".join(map(sql_literal, texts))

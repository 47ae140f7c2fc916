"""Stored values as SQL of the kinds they may be: NULL for a value that a kind cannot hold exactly.

Times are compared and nothing else, so what they are cast to keeps their order: dates and times to
microseconds since 1970, to nanoseconds only where some are finer; numbers to floating point, to
decimals only where some have more digits than it tells apart.
"""

from __future__ import annotations

from typing import Literal

from foretaste.data.csv_files import digits
from foretaste.data.scans import Column, Storage

Kind = Literal[
    "short", "integer", "real", "text",
    "exact", "decimal", "moment", "moment_ns", "instant", "instant_ns",
]  # fmt: skip
"""What a column holds; ``short`` are integers of 32 bits, which take half the memory of others.

``exact`` are floating-point numbers of which no digit is lost, ``decimal`` numbers of up to 29
digits and nine decimals. ``moment`` are dates and times without a UTC offset, ``instant`` those
with one; ``_ns`` are read to the nanosecond, the others to the microsecond.
"""

KINDS: dict[str, tuple[tuple[Kind, ...], ...]] = {
    "user_id": (("short", "integer", "text"),),
    "item_id": (("short", "integer", "text"),),
    "rating": (("real",),),
    "time": (
        ("short", "integer", "exact", "decimal"),
        ("moment", "moment_ns"),
        ("instant", "instant_ns"),
    ),
}
"""What a column of each role may turn out to hold: of the kinds in one row a value that fits one
fits those after it."""

_DECIMAL = "DECIMAL(38, 9)"
# Abbreviations mean several zones: BST is taken for that of Bangladesh.
_ZONE = "([-+][0-9:]+|Z|UTC|GMT|[A-Za-z_]+/.*)"
# More digits than these need not come back from a floating-point number.
_EXACT_DIGITS = 15


def cast(column: Column, kind: Kind) -> str:
    """SQL of a column as ``kind``: NULL where a value does not fit it exactly."""
    name, storage = column.sql, column.storage
    if storage == "text":
        text = _cast_text(name, kind)
        is_time = column.rounded is not None and kind in ("exact", "decimal")
        return f"CASE WHEN NOT {column.rounded} THEN {text} END" if is_time else text
    if storage == "decimal" and kind != "real":
        return _cast_text(f"CAST({name} AS VARCHAR)", kind)
    real, decimal = f"CAST({name} AS DOUBLE)", f"TRY_CAST({name} AS {_DECIMAL})"
    casts: dict[tuple[Storage, Kind], str] = {
        ("integer", "short"): f"TRY_CAST({name} AS INTEGER)",
        ("integer", "integer"): f"TRY_CAST({name} AS BIGINT)",
        ("integer", "text"): f"CAST({name} AS VARCHAR)",
        ("integer", "real"): real,
        ("integer", "exact"): f"CASE WHEN CAST({real} AS HUGEINT) = {name} THEN {real} END",
        ("integer", "decimal"): decimal,
        ("real", "real"): _finite(real),
        ("real", "exact"): _finite(real),
        ("real", "decimal"): f"CASE WHEN CAST({decimal} AS DOUBLE) = {real} THEN {decimal} END",
        ("decimal", "real"): real,
        ("wide", "real"): _finite(real),
        **_casts_of_times(name),
    }
    return casts.get((storage, kind), "CAST(NULL AS BIGINT)")


def _casts_of_times(name: str) -> dict[tuple[Storage, Kind], str]:
    """Of columns that are stored as times."""
    micros, nanos = f"epoch_us(TRY_CAST({name} AS TIMESTAMP))", f"epoch_ns({name})"
    coarse = f"CASE WHEN {nanos} % 1000 = 0 THEN {nanos} // 1000 END"
    return {
        ("moment", "moment"): micros,
        ("moment", "moment_ns"): _as_nanos(micros),
        ("moment_ns", "moment"): coarse,
        ("moment_ns", "moment_ns"): f"CAST({nanos} AS HUGEINT)",
        ("instant", "instant"): micros,
        ("instant", "instant_ns"): _as_nanos(micros),
        ("instant_ns", "instant"): coarse,
        ("instant_ns", "instant_ns"): f"CAST({nanos} AS HUGEINT)",
    }


def _cast_text(name: str, kind: Kind) -> str:
    # DuckDB moves a bare TRY_CAST into its CSV reader, and there it fails as CAST does.
    text = f"nullif({name}, '')"
    if kind in ("moment", "moment_ns", "instant", "instant_ns"):
        return _cast_time(name, text, kind)
    short, integer = f"TRY_CAST({name} AS INTEGER)", f"TRY_CAST({name} AS BIGINT)"
    real = f"TRY_CAST({text} AS DOUBLE)"
    return {
        # The cast alone takes 007, 1_000 and 77.5 for integers; only what reads the same is one.
        "short": f"CASE WHEN CAST({short} AS VARCHAR) = {name} THEN {short} END",
        "integer": f"CASE WHEN CAST({integer} AS VARCHAR) = {name} THEN {integer} END",
        "text": text,
        "real": _finite(real),
        "exact": _exact(name, real),
        "decimal": f"CASE WHEN regexp_full_match({name}, '[-+]?[0-9]*[.]?[0-9]{{0,9}}0*') "
        f"THEN TRY_CAST({text} AS {_DECIMAL}) END",
    }[kind]


def _cast_time(name: str, text: str, kind: Kind) -> str:
    decimals = 9 if kind.endswith("_ns") else 6
    clock = f"[^:]*:[0-9:]*([.][0-9]{{0,{decimals}}}0*)?"
    # Cast to TIMESTAMP whatever follows the seconds is dropped without a word: offsets, PM, junk.
    if kind.startswith("instant"):
        pattern = f"{clock} ?{_ZONE} *"
        instant = f"replace(replace(rtrim({text}), ' +', '+'), ' -', '-')"
        micros = f"epoch_us(TRY_CAST({instant} AS TIMESTAMPTZ))"
    else:
        pattern = f"{clock} *|[^:]*"
        micros = f"epoch_us(TRY_CAST({text} AS TIMESTAMP))"
    # Microseconds are cut and not rounded, so the decimals after them can be added.
    finer = f"rpad(regexp_extract({name}, '[.][0-9]{{6}}([0-9]{{1,3}})', 1), 3, '0')"
    value = f"{_as_nanos(micros)} + CAST({finer} AS INTEGER)" if decimals == 9 else micros
    return f"CASE WHEN regexp_full_match({name}, '{pattern}') THEN {value} END"


def _as_nanos(micros: str) -> str:
    return f"CAST({micros} AS HUGEINT) * 1000"


def _exact(name: str, real: str) -> str:
    """A number of which text can be made again, digit for digit."""
    again = f"CAST({real} AS VARCHAR)"
    # Regular expressions are slow, and few numbers need them: those with zeros at the end.
    return (
        f"CASE WHEN NOT isfinite({real}) THEN NULL WHEN strlen({name}) <= {_EXACT_DIGITS} "
        f"OR {again} = {name} THEN {real} "
        f"WHEN {digits(name)} = {digits(again)} THEN {real} END"
    )


def _finite(real: str) -> str:
    return f"CASE WHEN isfinite({real}) THEN {real} END"

"""Raw rows, cast and checked: whatever is wrong with a value is said with its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from foretaste._util.formatting import counted, shown
from foretaste.data.engine import Engine
from foretaste.data.scans import Column, Scan, Storage
from foretaste.errors import InputError

Kind = Literal["short", "integer", "real", "moment", "text"]
"""What a column holds; ``short`` are integers of 32 bits, which take half the memory of others."""

# What a column may turn out to hold, narrowest first. A narrower kind is tried on a sample, then
# on every value; only if some value does not fit is the source read again with the next kind.
_KINDS: dict[str, tuple[Kind, ...]] = {
    "user_id": ("short", "integer", "text"),
    "item_id": ("short", "integer", "text"),
    "rating": ("real",),
    "time": ("short", "integer", "real", "moment"),
}
_SAMPLE_ROWS = 1000
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+")
_NOUNS: dict[Kind, str] = {
    "integer": "a number or a date such as 2020-12-31",
    "real": "a finite number",
    "moment": "a date such as 2020-12-31",
    "text": "an id",
}


def read_raw(engine: Engine, scans: Sequence[Scan], columns: dict[str, str]) -> dict[str, Kind]:
    """Make table ``raw`` of the columns given by role, and say what kind each was found to be.

    Without columns of their own, ``rating`` is 0 and ``time`` the scan's place in a split. Raises
    InputError naming file, line and an example where a value is missing or not of any kind its
    role may have.
    """
    _check_storage(scans, columns)
    with naming(scans):
        for scan in scans:
            engine.know(scan)
        return _read(engine, scans, columns)


@contextmanager
def naming(scans: Sequence[Scan]) -> Iterator[None]:
    """Has an InputError that names none of the scans begin with their names."""
    try:
        yield
    except InputError as error:
        if any(scan.name in str(error) for scan in scans):
            raise
        for scan in scans:
            scan.check_lines()
        raise InputError(f"{_names(scans)}: {error}") from None


def _read(engine: Engine, scans: Sequence[Scan], columns: dict[str, str]) -> dict[str, Kind]:
    """Read with the kinds that a sample suggests, and wider ones until all values fit."""
    kinds = {role: _guess(engine, scans[0].columns[columns[role]], scans[0], role)
             for role in columns}  # fmt: skip
    guessed = _without_short(kinds)
    while short := _read_as(engine, scans, columns, kinds):
        for role in short:
            wider = _KINDS[role][_KINDS[role].index(kinds[role]) + 1 :]
            if not wider:
                raise _bad_value(engine, scans, role, columns[role], guessed[role], kinds[role])
            kinds[role] = wider[0]
        engine.drop("raw")
    _refuse_nul(engine, scans, columns, kinds)
    return _without_short(kinds)


def _without_short(kinds: dict[str, Kind]) -> dict[str, Kind]:
    return {role: "integer" if kind == "short" else kind for role, kind in kinds.items()}


def _read_as(
    engine: Engine, scans: Sequence[Scan], columns: dict[str, str], kinds: dict[str, Kind]
) -> list[str]:
    """Read with the given kinds; the roles for which some value does not fit."""
    engine.make("raw", _union(scans, columns, kinds))
    fitting = ", ".join(f"count({role})" for role in columns)
    num_rows, *num_fitting = engine.row(f"SELECT count(*), {fitting} FROM raw")
    if num_rows == 0:
        raise InputError(f"{_names(scans)}: has no rows, only column names")
    return [role for role, count in zip(columns, num_fitting, strict=True) if count < num_rows]


def _names(scans: Sequence[Scan]) -> str:
    shown = ", ".join(scan.name for scan in scans[:3])
    return shown if len(scans) <= 3 else f"{shown} and {len(scans) - 3} more"


def _union(scans: Sequence[Scan], columns: dict[str, str], kinds: dict[str, Kind]) -> str:
    return "\nUNION ALL ".join(
        f"SELECT {_selected(scan, columns, kinds)} FROM {scan.relation}" for scan in scans
    )


def _selected(scan: Scan, columns: dict[str, str], kinds: dict[str, Kind]) -> str:
    casts = {role: _cast(scan.columns[name], kinds[role]) for role, name in columns.items()}
    constants = {"rating": _constant(0), "time": _constant(scan.place)}
    return ", ".join(f"{(constants | casts)[role]} AS {role}" for role in _KINDS)


def _constant(value: int) -> str:
    return f"CAST({value} AS TINYINT)"


def _guess(engine: Engine, column: Column, scan: Scan, role: str) -> Kind:
    """The kind that most of the first rows fit, the narrowest of several."""
    fits = ", ".join(f"count({_cast(column, kind)})" for kind in _KINDS[role])
    sample = f"(SELECT * FROM {scan.relation} LIMIT {_SAMPLE_ROWS})"
    num_fitting = dict(zip(_KINDS[role], engine.row(f"SELECT {fits} FROM {sample}"), strict=True))
    return max(num_fitting, key=lambda kind: num_fitting[kind])


def _cast(column: Column, kind: Kind) -> str:
    """SQL of a column as ``kind``: NULL where a value does not fit it exactly."""
    name = column.sql
    if column.storage == "text":
        return _cast_text(name, kind)
    casts: dict[tuple[Storage, Kind], str] = {
        ("integer", "short"): f"TRY_CAST({name} AS INTEGER)",
        ("integer", "integer"): f"TRY_CAST({name} AS BIGINT)",
        ("integer", "text"): f"CAST({name} AS VARCHAR)",
        ("integer", "real"): f"CAST({name} AS DOUBLE)",
        ("real", "real"): _finite(f"CAST({name} AS DOUBLE)"),
        ("moment", "moment"): f"epoch_us(TRY_CAST({name} AS TIMESTAMP))",
    }
    return casts.get((column.storage, kind), "CAST(NULL AS BIGINT)")


def _cast_text(name: str, kind: Kind) -> str:
    # DuckDB moves a bare TRY_CAST into its CSV reader, and there it fails as CAST does.
    text = f"nullif({name}, '')"
    short, integer = f"TRY_CAST({name} AS INTEGER)", f"TRY_CAST({name} AS BIGINT)"
    real = f"TRY_CAST({text} AS DOUBLE)"
    return {
        # The cast alone takes 007, 1_000 and 77.5 for integers; only what reads the same is one.
        "short": f"CASE WHEN CAST({short} AS VARCHAR) = {name} THEN {short} END",
        "integer": f"CASE WHEN CAST({integer} AS VARCHAR) = {name} THEN {integer} END",
        "text": text,
        "real": _finite(real),
        "moment": f"epoch_us(TRY_CAST({text} AS TIMESTAMP))",
    }[kind]


def _finite(real: str) -> str:
    return f"CASE WHEN isfinite({real}) THEN {real} END"


def _check_storage(scans: Sequence[Scan], columns: dict[str, str]) -> None:
    allowed: dict[str, set[Storage]] = {
        "user_id": {"text", "integer"},
        "item_id": {"text", "integer"},
        "rating": {"text", "integer", "real"},
        "time": {"text", "integer", "real", "moment"},
    }
    for scan in scans:
        # Columns of a frame without rows may be of any type.
        if scan.frame is not None and not scan.frame.num_rows:
            continue
        for role, name in columns.items():
            column = scan.columns[name]
            if column.storage not in allowed[role]:
                real = column.storage == "real"
                hint = " (missing ids turn integers into floats)" if real else ""
                raise InputError(
                    f"{scan.name}: column {shown(name)} is of type {column.type_name:.200}{hint}; "
                    f"{role} must be {_either(allowed[role])}"
                )


def _either(allowed: set[Storage]) -> str:
    words = {"text": "text", "integer": "integers", "real": "numbers", "moment": "timestamps"}
    return " or ".join(words[storage] for storage in words if storage in allowed)


def _bad_value(
    engine: Engine, scans: Sequence[Scan], role: str, name: str, guessed: Kind, last: Kind
) -> InputError:
    """The error for a column with values of no kind its role may have."""
    for kind in (last, guessed):
        for scan in scans:
            column = scan.columns[name]
            text = _shown(column)
            count, num_empty, example = engine.row(
                f"SELECT count(*), count(*) - count({text}), min({text}) "
                f"FROM {scan.relation} WHERE {_cast(column, kind)} IS NULL"
            )
            if count and num_empty:
                problem = f"{role} is empty"
                return _error_at(scan, name, None, problem, num_empty, _advice(role, ""))
            if count and kind == guessed:
                problem = f"{role} {shown(example)} is not {_NOUNS[guessed]}"
                return _error_at(scan, name, example, problem, count, _advice(role, example))
    raise AssertionError(f"{role}: values did not fit, and now they do")


def _advice(role: str, example: str) -> str:
    """What helps against a value that is of no kind its role may have."""
    if _DECIMAL_COMMA.fullmatch(example):
        return "; write decimals with a point: " + example.replace(",", ".")
    if role == "time":
        return (
            "; mend the column, or use a protocol that does not look at times: --protocol "
            "held-out-users (protocol='held-out-users' in Python)"
        )
    return ""


def _shown(column: Column) -> str:
    """SQL of a column as a message shows it; NULL where it is empty."""
    if column.storage == "moment":
        # DuckDB dies of turning some of these into text.
        return f"CASE WHEN {column.sql} IS NOT NULL THEN 'out of range' END"
    return f"nullif(CAST({column.sql} AS VARCHAR), '')"


def like_it(count: int, noun: str) -> str:
    """How many there are of what an error shows: ``3 rows like it``."""
    return f"{counted(count, noun)} like it"


def _refuse_nul(
    engine: Engine, scans: Sequence[Scan], columns: dict[str, str], kinds: dict[str, Kind]
) -> None:
    for role in ("user_id", "item_id"):
        if kinds[role] != "text":
            continue
        if not engine.count(f"raw WHERE contains({role}, chr(0))"):
            continue
        for scan in scans:
            text = f"CAST({scan.columns[columns[role]].sql} AS VARCHAR)"
            count, example = engine.row(
                f"SELECT count(*), min({text}) FROM {scan.relation} WHERE contains({text}, chr(0))"
            )
            if count:
                problem = f"{role} {shown(example)} holds a NUL character"
                raise _error_at(scan, columns[role], example, problem, count)


def _error_at(
    scan: Scan, name: str, value: str | None, problem: str, count: int, advice: str = ""
) -> InputError:
    where = scan.locate(name, value)
    rows = like_it(count, "row")
    return InputError(f"{where}: {problem} (column {shown(name)}, {rows}){advice}")

"""What is said of values that are of no kind their role may have: the first of them, where it is,
and what helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from foretaste._util.formatting import counted, shown
from foretaste.data.casts import Kind, cast
from foretaste.data.csv_files import quoted
from foretaste.data.engine import Engine
from foretaste.data.scans import Column, Scan
from foretaste.data.time_formats import describe_format
from foretaste.errors import InputError

_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+")
_NOUNS: dict[Kind, str] = {
    "decimal": "a number or a date such as 2020-12-31",
    "real": "a finite number",
    "moment_ns": "a date such as 2020-12-31",
    "instant_ns": "a time such as 2020-12-31 10:00:00+02:00",
    "text": "an id",
}
_WITH_OTHER_OFFSETS: dict[Kind, Kind] = {"moment_ns": "instant_ns", "instant_ns": "moment_ns"}
_DECIMALS = re.compile(r"([.][0-9]{9})[0-9]+")


def bad_value(
    engine: Engine, scans: Sequence[Scan], role: str, name: str, kind: Kind
) -> InputError:
    """The error for column ``name``, of which some value does not fit ``kind``, the widest."""
    for scan in scans:
        column = scan.columns[name]
        text, misfits = _as_text(column), f"{scan.relation} WHERE {cast(column, kind)} IS NULL"
        count, num_empty = engine.row(f"SELECT count(*), count(*) - count({text}) FROM {misfits}")
        if num_empty:
            return error_at(scan, name, None, f"{role} is empty", num_empty, _advice(role, ""))
        if count:
            values = f"SELECT {text} FROM {misfits}"
            (example,) = engine.first(values)
            problem, advice = f"is not {_NOUNS[kind]}", _advice(role, example)
            if role == "time":
                problem = _problem_of_time(engine, column, example, kind) or problem
                if format := describe_format(engine, values, example):
                    advice = f"; {format}"
            problem = f"{role} {shown(example)} {problem}"
            return error_at(scan, name, example, problem, count, advice)
    raise AssertionError(f"{role}: values did not fit, and now they do")


def like_it(count: int, noun: str) -> str:
    """How many there are of what an error shows: ``3 rows like it``."""
    return f"{counted(count, noun)} like it"


def error_at(
    scan: Scan, name: str, value: str | None, problem: str, count: int, advice: str = ""
) -> InputError:
    """The error for a value of column ``name``, with the line that it is first on."""
    where = scan.locate(name, value)
    rows = like_it(count, "row")
    return InputError(f"{where}: {problem} (column {shown(name)}, {rows}){advice}")


def _as_text(column: Column) -> str:
    """SQL of a column as a message shows it; NULL where it is empty."""
    if column.text is None and _is_stored_as_time(column):
        # DuckDB dies of turning some of these into text.
        return f"CASE WHEN {column.sql} IS NOT NULL THEN {quoted(column.type_name)} END"
    return f"nullif(CAST({column.text or column.sql} AS VARCHAR), '')"


def _is_stored_as_time(column: Column) -> bool:
    return column.storage.startswith(("moment", "instant"))


def _problem_of_time(engine: Engine, column: Column, example: str, kind: Kind) -> str | None:
    """What is wrong with a time that is none of ``kind``, where more can be said than that."""

    def fits(text: str, kind: Kind) -> bool:
        if column.storage != "text":
            return column.storage.startswith(kind.removesuffix("_ns"))
        literal = replace(column, sql=f"CAST({quoted(text)} AS VARCHAR)", rounded=None)
        return bool(engine.row(f"SELECT {cast(literal, kind)} IS NOT NULL")[0])

    other = _WITH_OTHER_OFFSETS.get(kind)
    if other is not None and fits(example, other):
        has, others_have = ("no", "one") if kind == "instant_ns" else ("a", "none")
        return f"has {has} UTC offset, and others have {others_have}; write all of them alike"
    if column.time_format is not None:
        return f"is not written as {shown(column.time_format)} says"
    if _is_stored_as_time(column) and fits(example, kind):
        return "is out of range"
    if column.rounded is not None and fits(example, kind):
        return "is a number with more digits than JSON keeps; write it as text, in quotes"
    if column.storage == "text" and kind == "decimal" and fits(example, "real"):
        return "cannot be kept exactly, as up to 29 digits and nine decimals can"
    if column.storage == "text" and fits(_DECIMALS.sub(r"\1", example), kind):
        return "is finer than a nanosecond"
    return None


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

"""Times that are text of a form of their own: read as ``time_format`` says, and told by example."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from foretaste._util.formatting import shown
from foretaste._util.settings import wrong
from foretaste.data.csv_files import quoted
from foretaste.data.engine import Engine
from foretaste.data.scans import Scan, Storage
from foretaste.errors import InputError, SettingError

_STORAGES: dict[str, Storage] = {
    "TIMESTAMP": "moment",
    "TIMESTAMP_NS": "moment_ns",
    "TIMESTAMP WITH TIME ZONE": "instant",
    "TIMESTAMPTZ_NS": "instant_ns",
}
_DATE = re.compile(r"\d{1,2}([/.-])\d{1,2}\1(\d{4}|\d{2})(?!\d)")
_DATE_SQL = "^([0-9]{1,2})[/.-]([0-9]{1,2})[/.-]"
_PARTS = (
    (r"[ T]\d{1,2}:\d\d:\d\d", "%H:%M:%S"),
    (r"[ T]\d{1,2}:\d\d", "%H:%M"),
    (r"[.]\d{1,6}(?!\d)", ".%f"),
    (r"[.]\d+", ".%n"),
    (r" ?[AaPp][Mm]", "%p"),
    (r" ?[-+]\d\d:?\d\d", "%z"),
)


def with_time_format(engine: Engine, scans: Sequence[Scan], name: str, format: str) -> list[Scan]:
    """The scans with column ``name`` read by ``format`` wherever it is text.

    Raises SettingError where it is none that DuckDB's strptime reads, or the column is no text.
    """
    first = scans[0].columns[name]
    if all(scan.columns[name].storage != "text" for scan in scans):
        raise SettingError(
            f"time_format is for times that are text, and column {shown(name)} of {scans[0].name} "
            f"is of type {first.type_name:.200}; leave it out"
        )
    try:
        (found,) = engine.row(f"SELECT typeof(try_strptime('', {quoted(format)}))")
    except InputError:
        raise wrong("time_format", format, "one as strptime has it, such as %d/%m/%Y") from None
    return [_formatted(scan, name, format, _STORAGES[found]) for scan in scans]


def _formatted(scan: Scan, name: str, format: str, storage: Storage) -> Scan:
    column = scan.columns[name]
    if column.storage != "text":
        return scan
    # strptime takes infinity and epoch for times of any format.
    sql = (
        f"CASE WHEN regexp_matches({column.sql}, '[0-9]') "
        f"THEN try_strptime({column.sql}, {quoted(format)}) END"
    )
    read = replace(column, sql=sql, storage=storage, text=column.sql, time_format=format)
    return replace(scan, columns=scan.columns | {name: read})


def describe_format(engine: Engine, values: str, example: str) -> str | None:
    """The ``time_format`` that reads an example of ``values`` such as 31/12/2020; None where there
    is none. ``values`` is a query of one column of text."""
    if _DATE.match(example) is None:
        return None
    first, second = engine.row(
        f"SELECT max(CAST(regexp_extract(value, '{_DATE_SQL}', 1) AS INTEGER)), "
        f"max(CAST(regexp_extract(value, '{_DATE_SQL}', 2) AS INTEGER)) "
        f"FROM ({values}) AS found(value) WHERE regexp_matches(value, '{_DATE_SQL}')"
    )
    orders = {"day": "%d{0}%m{0}", "month": "%m{0}%d{0}"}
    if max(first, second) > 12:
        orders.pop("month" if first > 12 else "day")
    formats = {leading: _format(engine, order, example) for leading, order in orders.items()}
    said = [
        f"--time-format {shown(format)} reads dates with the {leading} first"
        for leading, format in formats.items()
        if format is not None
    ]
    return f"{', '.join(said)} (time_format=... in Python)" if said else None


def _format(engine: Engine, order: str, example: str) -> str | None:
    """The format of a date in this order and a time after it; None where it does not read it."""
    date = _DATE.match(example)
    assert date is not None
    separator, year = date.groups()
    format, rest = (
        order.format(separator) + ("%Y" if len(year) == 4 else "%y"),
        example[date.end() :],
    )
    for pattern, directive in _PARTS:
        if found := re.match(pattern, rest):
            lead = found.group()[0] if found.group()[0] in " T" else ""
            format, rest = format + lead + directive, rest[found.end() :]
    if "%p" in format:
        format = format.replace("%H", "%I")
    (read,) = engine.row(f"SELECT try_strptime({quoted(example)}, {quoted(format)}) IS NOT NULL")
    return format if read else None

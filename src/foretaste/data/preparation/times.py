"""Times: the units of numbers, the notes on what was read, and the formats of text.

Dates are microseconds since 1970. Numbers keep their unit; if the units of the sources differ, all
become microseconds. This machine's clock decides notes and nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.formatting import pluralize, short_repr
from foretaste._util.settings import setting_error
from foretaste.data.preparation.casts import Kind, cast
from foretaste.data.sources.source import TIMES, Source, Storage, sql_literal
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

# Numbers between these bounds, in any of these units, are times since 1970. The units
# are powers of ten of a second.
_EARLIEST, _LATEST = 10**8, 4_102_444_800  # 1973, 2100
_UNITS = {"seconds": 0, "milliseconds": 3, "microseconds": 6, "nanoseconds": 9}
_IS_UNIT = {
    unit: f"time BETWEEN {_EARLIEST * 10**power} AND {_LATEST * 10**power}"
    for unit, power in _UNITS.items()
}
_NUM_OF_UNITS = ", ".join(f"count(CASE WHEN {one} THEN 1 END)" for one in _IS_UNIT.values())
_NO_TIME = -(1 << 63)
_YEAR_S = 365.2425 * 86_400
_FIRST_YEAR = 1995
"""A note names times before this year. Few shops have older records."""

# SQL of the year, month and day in a number of eight digits.
_DAYS = {
    "%Y%m%d": ("floor(time / 10000)", "floor(time / 100) % 100", "time % 100"),
    "%d%m%Y": ("time % 10000", "floor(time / 10000) % 100", "floor(time / 1000000)"),
    "%m%d%Y": ("time % 10000", "floor(time / 1000000)", "floor(time / 10000) % 100"),
}

_STORED: dict[str, Storage] = {
    "TIMESTAMP": "moment",
    "TIMESTAMP_NS": "moment",
    "TIMESTAMP WITH TIME ZONE": "instant",
    "TIMESTAMPTZ_NS": "instant",
}
OPTION = "--time-format (time_format=... in Python)"
_UNFIT = (
    "does not fit: times are all numbers, all dates such as 2020-12-31 10:00:00, or all dates with "
    "a UTC offset such as +02:00"
)
_NOUNS: dict[Kind, str] = {
    "real": "numbers", "moment": "dates without a UTC offset", "instant": "dates with a UTC offset"
}  # fmt: skip
NO_TIMES = (
    "; fix the column, or use a protocol that does not look at times: --protocol held-out-users "
    "(protocol='held-out-users' in Python)"
)

_CLOCK = re.compile(r"(?<!\d)\d{1,2}:\d\d(:\d\d)?([.,]\d+)?(\s*)([ap]m)?", re.IGNORECASE)
_DIGITS = re.compile(r"(?<!\d)(\d{8})([T _-]?)(\d{6}|\d{4})(?!\d)")
_OFFSET = re.compile(r"(?<=%[MSnp])( ?)[-+]\d\d:?\d\d(?!\d)")
_ZONE = re.compile(r"(?<=%[MSnp]) [A-Z]{3,4}(?![A-Za-z])")
_WEEKDAY = re.compile(r"\b(?:mon|tue|wed|thu|fri|sat|sun)([a-z]*)", re.IGNORECASE)
_MONTH = re.compile(r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*", re.IGNORECASE)


@dataclass
class Times:
    """The times in table ``raw``, read from ``column`` of the sources."""

    engine: Engine
    sources: Sequence[Source]
    column: str
    kind: Kind

    units: str
    """The units of the sources in words, if they have several; otherwise empty."""

    first: Any = field(init=False)
    last: Any = field(init=False)

    num_of_unit: dict[str, int] = field(init=False)
    """The number of times in each unit; empty for ranks, which have no unit. The unit of dates is
    "".
    """

    def __post_init__(self) -> None:
        self.first, self.last, *num_of_unit = self.engine.row(
            f"SELECT min(time), max(time), {_NUM_OF_UNITS} FROM raw"
        )
        if self.first == _NO_TIME:
            found = self.engine.find_value(
                self.sources, self.column, self.kind, str(_NO_TIME + 1) + " - 1"
            )
            raise InputError(
                f"{found.place}: time {_NO_TIME} is no time but the missing value of NumPy and "
                f"pandas (column {short_repr(self.column)}, {pluralize(found.count, 'row')} like "
                "it)"
            )
        self.num_of_unit = {"": 1} if self.kind in TIMES else _occurring(num_of_unit)

    @property
    def per_second(self) -> int | None:
        """One second as a difference in ``time``; None without a unit, or with several units."""
        if len(self.num_of_unit) != 1:
            return None
        (unit,) = self.num_of_unit
        return int(10 ** _UNITS.get(unit, 6))

    def describe(self) -> dict[str, str]:
        """Return the first and last time; a note on several units, on days written as numbers, and
        on times before 1995 or after the next month."""
        ends = f"{_format_number(self.first)} to {_format_number(self.last)}"
        if self.per_second is None:
            if self.num_of_unit:
                return {"times": ends, "units of time": self.unit_problem()}
            notes = {"times": f"{ends}, read as ranks"}
            if format := self.format_of_days():
                notes["days"] = f"all times are days in the form {format}; {OPTION} reads them"
            return notes
        dates = " to ".join(map(self.date_of, (self.first, self.last)))
        (unit,) = self.num_of_unit
        read_as = self.units or unit
        return {"times": dates + (read_as and f", read as {read_as}")} | self._outlying()

    def format_of_days(self) -> str | None:
        """Return the format of eight-digit days; None if some times are no days."""
        is_format = [
            f"{year} BETWEEN {_FIRST_YEAR} AND 2100 AND {month} BETWEEN 1 AND 12 "
            f"AND {day} BETWEEN 1 AND 31"
            for year, month, day in _DAYS.values()
        ]
        counts = ", ".join(f"count(CASE WHEN {one} THEN 1 END)" for one in is_format)
        num_rows, *found = self.engine.row(f"SELECT count(*), {counts} FROM raw")
        return next((one for one, n in zip(_DAYS, found, strict=True) if n == num_rows), None)

    def unit_problem(self) -> str:
        """Return the message on several time units, with the first time in the rarest unit."""
        columns = [source.columns[self.column] for source in self.sources]
        times = [cast(self.engine.sql, column, self.kind) for column in columns]
        units = [
            _units_in(self.engine, f"(SELECT {time} AS time FROM {source.rows_kept})")
            for time, source in zip(times, self.sources, strict=True)
        ]
        found = max(units, key=len)
        place = units.index(found)
        rare = min(found, key=found.__getitem__)
        is_rare = _IS_UNIT[rare].replace("time", times[place], 1)
        row = self.engine.find_rows(self.sources[place], is_rare, columns[place].stored_text)
        others = found if len(found) > 1 else self.num_of_unit
        listed = " and ".join(f"{n:,} in {unit}" for unit, n in others.items() if unit != rare)
        return (
            f"{row.place}: time {short_repr(row.value)} is in {rare} (column "
            f"{short_repr(self.column)}, {pluralize(row.count, 'row')} like it), and {listed}: "
            "times of several units cannot be put in order; write all of them in one"
        )

    def example(self, query: str) -> str:
        """Return text, day and place of the time that a query returns, for a note."""
        (time,) = self.engine.row(query)
        found = self.engine.find_value(self.sources, self.column, self.kind, f"({query})")
        text = f"{short_repr(found.value)}, " if found.value else ""
        # The note omits the file's folder, which differs from machine to machine.
        return f"{text}{self.date_of(time)} ({Path(found.place).name})"

    def _outlying(self) -> dict[str, str]:
        """Return a note on times before 1995 or after the next month; empty without them."""
        assert self.per_second is not None
        years, months = divmod(_months_now() + 2, 12)
        begin, end = datetime(_FIRST_YEAR, 1, 1), datetime(years, months + 1, 1)
        low, high = (
            int((date - datetime(1970, 1, 1)).total_seconds()) * self.per_second
            for date in (begin, end)
        )
        if low <= self.first and self.last < high:
            return {}
        is_out = f"time < {low} OR time >= {high}"
        examples = dict.fromkeys(
            self.example(f"SELECT {end_of}(time) FROM raw WHERE {is_out}")
            for end_of in ("min", "max")
        )
        num_out, num_rows = self.engine.count(f"raw WHERE {is_out}"), self.engine.count("raw")
        latest = f"{end - timedelta(days=1):%Y-%m}"
        return {
            "unusual times": f"{num_out:,} of {num_rows:,} lie before {_FIRST_YEAR} or after "
            f"{latest}: {' and '.join(examples)}; {OPTION} reads times that are "
            "written in another form"
        }

    def date_of(self, time: float) -> str:
        """Return the day of a time, in UTC; the year if it is out of the calendar."""
        assert self.per_second is not None
        seconds = float(time) / self.per_second
        try:
            return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).date().isoformat()
        except OverflowError:
            return f"the year {1970 + seconds / _YEAR_S:.0f}"


def _months_now() -> int:
    """Return the number of whole months since the year 0."""
    now = datetime.now(UTC)
    return now.year * 12 + now.month - 1


def _format_number(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _units_in(engine: Engine, relation: str) -> dict[str, int]:
    """Return the number of times of a relation in each unit that occurs."""
    return _occurring(engine.row(f"SELECT {_NUM_OF_UNITS} FROM {relation}"))


def _occurring(num_of_unit: Sequence[int]) -> dict[str, int]:
    """Return the numbers of `_NUM_OF_UNITS` above 0, by their unit."""
    return {unit: number for unit, number in zip(_UNITS, num_of_unit, strict=True) if number}


def with_own_units(
    engine: Engine, sources: Sequence[Source], name: str, kind: Kind
) -> tuple[list[Source], str] | None:
    """Return the sources with the numbers of each file in microseconds, as kind ``real``, and the
    old units in words; None if table ``raw`` has one unit, or if a file has no unit or several
    units.
    """
    if len(_units_in(engine, "raw")) < 2:
        return None
    times = "\nUNION ALL ".join(
        f"SELECT {number} AS number, {source.file} AS file, "
        f"{cast(engine.sql, source.columns[name], kind)} AS time FROM {source.rows_kept}"
        for number, source in enumerate(sources)
    )
    query = f"SELECT number, file, {_NUM_OF_UNITS} FROM ({times}) GROUP BY number, file"
    scaled = list(sources)
    files_of: dict[str, list[tuple[int, str]]] = {}
    for number, file, *found in sorted(engine.run(query)):
        units = list(_occurring(found))
        if len(units) != 1:
            return None
        files_of.setdefault(units[0], []).append((number, file))
    for number, source in enumerate(sources):
        files = {
            unit: [file for of, file in found if of == number] for unit, found in files_of.items()
        }
        cases = " ".join(
            f"WHEN {source.file} IN ({', '.join(map(sql_literal, files))}) "
            f"THEN 1e{6 - _UNITS[unit]}"
            for unit, files in files.items()
            if files
        )
        column = source.columns[name]
        if cases:  # empty without rows
            micros = f"({cast(engine.sql, column, 'real')} * CASE {cases} END)"
            column = replace(column, sql=micros, storage="real", text=column.sql)
            scaled[number] = replace(source, columns=source.columns | {name: column})
    return scaled, " and as ".join(
        f"{unit} in {Path(found[0][1] or sources[found[0][0]].name).name}"
        + (f" and {len(found) - 1} more" if len(found) > 1 else "")
        for unit, found in files_of.items()
    )


def with_time_format(
    engine: Engine, sources: Sequence[Source], name: str, format: str
) -> list[Source]:
    """Return the sources, with column ``name`` read by ``format`` if it is text.

    Raises SettingError for a format that DuckDB's strptime cannot read, and for a column that no
    source has as text.
    """
    first = sources[0].columns[name]
    if all(source.columns[name].storage != "text" for source in sources):
        raise SettingError(
            f"time_format is for times that are text, and column {short_repr(name)} of "
            f"{sources[0].name} is of type {first.type_name:.200}; leave it out, or make the "
            f"column text first: frame[{name!r}].astype(str), or CAST({name} AS VARCHAR)"
        )
    formatted = []
    for source in sources:
        column = source.columns[name]
        if column.storage == "text":
            try:
                (found,) = engine.row(f"SELECT typeof(try_strptime('', {sql_literal(format)}))")
            except InputError:
                raise setting_error(
                    "time_format", format, "one as strptime has it, such as %d/%m/%Y"
                ) from None
            # strptime reads the words infinity and epoch in any format, so a digit is required.
            sql = (
                f"CASE WHEN regexp_matches({column.sql}, '[0-9]') "
                f"THEN try_strptime({column.sql}, {sql_literal(format)}) END"
            )
            column = replace(
                column, sql=sql, storage=_STORED[found], text=column.sql, time_format=format
            )
        formatted.append(replace(source, columns=source.columns | {name: column}))
    return formatted


def with_clock(engine: Engine, sources: Sequence[Source], date: str, clock: str) -> list[Source]:
    """Return the sources with date and clock joined by a blank, as text in column ``date``.

    Raises SettingError for an engine that reads no times from text.
    """
    if not engine.reads_numbers_of_text:
        raise SettingError(
            "time_column names two columns, and engine spark reads times from one only; write "
            f"Parquet first with CAST(concat({date}, ' ', {clock}) AS TIMESTAMP), or prepare it "
            "with engine duckdb"
        )
    joined = []
    for source in sources:
        days, clocks = source.columns[date], source.columns[clock]
        day = f"CAST({days.sql} AS DATE)" if days.storage in TIMES else days.sql
        both = f"(CAST({day} AS STRING) || ' ' || CAST({clocks.sql} AS STRING))"
        column = replace(days, sql=both, storage="text", type_name="text")
        joined.append(replace(source, columns=source.columns | {date: column}))
    return joined


def describe_misfit(
    engine: Engine, sources: Sequence[Source], source: Source, name: str, kind: Kind, example: str
) -> tuple[str, str]:
    """Return the problem of a time of ``source`` that does not fit ``kind``, and the advice."""
    column, problem = source.columns[name], _UNFIT
    if column.time_format is not None:
        problem = f"is not written as {short_repr(column.time_format)} says"
    if formats := _formats_of(engine, sources, name, example):
        verb = "reads" if len(formats) == 1 else "each read"
        listed = " and ".join(map(short_repr, formats))
        return problem, f"; {OPTION} says how dates are written: {listed} {verb} all of them"
    if _CLOCK.fullmatch(example):
        dates = [other for other in source.columns if "date" in other.lower() and other != name]
        both = [*dates, "DATE"][0], name
        return problem, (
            f"; a clock alone is no time: --time-column {shlex.join(both)} (time_column={both} in "
            "Python) reads a date and a clock from two columns"
        )
    is_other_kind = " OR ".join(
        f"{cast(engine.sql, column, each)} IS NOT NULL" for each in _NOUNS if each != kind
    )
    misfit = f"{cast(engine.sql, column, kind)} IS NULL AND ({is_other_kind})"
    is_mixed = column.time_format is None and engine.count(f"{source.rows_kept} WHERE {misfit}")
    for other in sources:
        fits = f"{other.rows_kept} WHERE {cast(engine.sql, other.columns[name], kind)} IS NOT NULL"
        if (other is not source or is_mixed) and engine.count(fits):
            others = "other rows have" if other is source else f"{other.name} has"
            return problem, f"; {others} {_NOUNS[kind]}{NO_TIMES}"
    is_text = column.storage == "text" or column.text is not None
    written = f"; {OPTION} says how dates are written, such as '%d/%m/%Y %H:%M'"
    return problem, (written if is_text else "") + NO_TIMES


def _formats_of(engine: Engine, sources: Sequence[Source], name: str, example: str) -> list[str]:
    """Return the formats that read every time of the sources, all text such as ``example``."""
    formats = list(dict.fromkeys(_likely_formats(example)))
    for source in sources:
        column = source.columns[name]
        if not formats or (column.storage != "text" and column.text is None):
            return []
        text = column.text or column.sql
        # %Y reads 24 as the year 24.
        counts = ", ".join(
            f"count(CASE WHEN year(try_strptime({text}, {sql_literal(format)})) > 999 THEN 1 END)"
            for format in formats
        )
        num_times, *found = engine.row(
            f"SELECT count(*), {counts} FROM {source.rows_kept} WHERE {text} <> ''"
        )
        formats = [format for format, n in zip(formats, found, strict=True) if n == num_times]
    return formats


def _likely_formats(example: str) -> Iterator[str]:
    """Yield the possible formats of a time, days before months."""
    text = _CLOCK.sub(_format_of_clock, example.replace("%", "%%"), count=1)
    text = _DIGITS.sub(lambda found: f"{found[1]}{found[2]}%H%M" + "%S" * (len(found[3]) > 4), text)
    text = _ZONE.sub(" %Z", _OFFSET.sub(r"\1%z", text))
    text = _WEEKDAY.sub(lambda found: "%A" if found[1] else "%a", text)
    lengths = list(map(len, re.findall(r"\d+", text)))
    if lengths == [8]:
        yield from (re.sub(r"\d+", format, text) for format in _DAYS)
    months, orders = [""], ["dmY", "mdY", "Ymd", "dmy", "mdy", "ymd"]
    if _MONTH.search(text):
        months, orders = ["%b", "%B"], ["dY", "Yd", "dy", "yd"]
    for month, order in product(months, orders):
        if [letter == "Y" for letter in order] == [length == 4 for length in lengths]:
            letters = iter(order)
            yield re.sub(r"\d+", lambda _: f"%{next(letters)}", _MONTH.sub(month, text))  # noqa: B023


def _format_of_clock(found: re.Match[str]) -> str:
    seconds, fraction, gap, half = found.groups()
    clock = ("%I:%M" if half else "%H:%M") + (":%S" if seconds else "")
    return clock + (f"{fraction[0]}%n" if fraction else "") + gap + ("%p" if half else "")

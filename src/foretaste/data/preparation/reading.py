"""Raw rows, cast and checked; errors about values have the file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from foretaste._util.formatting import counted, shown
from foretaste.data.config import EmptyIds, IdType
from foretaste.data.preparation.casts import (
    KINDS,
    KINDS_OF_IDS,
    Kind,
    cast,
)
from foretaste.data.preparation.times import (
    NO_TIMES,
    describe_misfit,
    with_clock,
    with_own_units,
    with_time_format,
)
from foretaste.data.sources.arrow import Frame
from foretaste.data.sources.source import TIMES, Source, Storage, names_of, quoted
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine, Found

_SAMPLE_ROWS = 1000
_MOST_ROWS = 2**40
"""More than one source has."""

_ALLOWED: dict[str, tuple[Storage, ...]] = {
    "user_id": ("text", "integer"),
    "item_id": ("text", "integer"),
    "rating": ("text", "integer", "real", "decimal", "wide"),
    "time": ("text", "integer", "real", "decimal", "wide", *TIMES),
    "weight": ("text", "integer", "real", "decimal", "wide"),
    "event": ("text", "integer"),
}
_NOUNS_OF_STORAGE: dict[Storage, str] = {
    "text": "text", "integer": "integers", "real": "numbers", "moment": "timestamps"
}  # fmt: skip
_HINTS: dict[Storage, str] = {
    "real": " (a missing id makes all of them floats: leave its row out, then make them integers)",
    "wide": " (more than 38 digits)",
}

_NOUNS: dict[Kind, str] = {
    "real": "a finite number",
    "text": "an id",
    "integer": "an integer, as these ids are to be",
}
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+")
_DROP_EMPTY = (
    "; foretaste prepare --empty-ids drop (empty_ids='drop' in Python) leaves out rows with an "
    "empty id"
)
# Ids that are kept as they are written, but look damaged by a program before.
_AS_FLOAT = "-?[0-9]+[.]0+"
_OF_SPREADSHEET = "-?[0-9]([.][0-9]+)?[eE][+][0-9]+"


class Raw(NamedTuple):
    """What table ``raw`` was read from, and as what."""

    sources: list[Source]
    """The sources as they were read: registered, without the rows that were dropped."""

    kinds: dict[str, Kind]
    """The kind of each column, by role."""

    num_dropped: int
    """The number of rows dropped for an empty id."""

    units_of_times: str = ""
    """The units of the sources' times in words, if they differ and all are microseconds now."""


def read_raw(
    engine: Engine,
    sources: Sequence[Source],
    columns: dict[str, str],
    time_format: str | None = None,
    empty_ids: EmptyIds | None = None,
    id_types: Mapping[str, IdType] | None = None,
    *,
    by_rows: bool = False,
) -> Raw:
    """Make table ``raw`` of the columns given by role.

    Without a column, ``rating`` is 0, ``time`` is the number of the source's part or, ``by_rows``,
    that of the row, and ``weight`` and ``event`` are absent. Times that are text are read by
    ``time_format``. With role ``clock``, the column of ``time`` has dates, and both are joined.
    With ``empty_ids`` None, empty ids are refused, and the message has no advice on that setting.
    Raises InputError with file, line and example for a missing value, and for a value of no kind
    of its role.
    """
    if "clock" in columns:
        columns = dict(columns)
        sources = with_clock(engine, sources, columns["time"], columns.pop("clock"))
    _check_storage(sources, columns, empty_ids)
    num_dropped = 0
    with naming(sources):
        sources = engine.register(sources)
        if not engine.reads_numbers_of_text:
            _check_types(sources, columns)
        if empty_ids == "drop":
            sources, num_dropped = _without_empty_ids(engine, sources, columns)
        if time_format is not None and "time" in columns:
            sources = with_time_format(engine, sources, columns["time"], time_format)
        chains = KINDS | {role: KINDS_OF_IDS[kind] for role, kind in (id_types or {}).items()}
        # A sample suggests the kinds, and all rows decide where a value does not fit.
        start = f"(SELECT * FROM {sources[0].rows_kept} LIMIT {_SAMPLE_ROWS})"
        sample = [replace(sources[0], relation=start, kept="")]
        kinds = {
            role: _fitting(engine, sample, name, chains[role])[0] for role, name in columns.items()
        }
        num_rows, misfits = _read_as(engine, sources, columns, kinds, by_rows=by_rows)
        if misfits:
            for role, num_fitting in misfits.items():
                kind, num_fitting = _fitting(
                    engine, sources, columns[role], chains[role], kinds[role], num_fitting
                )
                if num_fitting < num_rows:
                    raise _bad_value(engine, sources, role, columns[role], kind, empty_ids)
                kinds[role] = kind
            engine.drop("raw")
            _read_as(engine, sources, columns, kinds, by_rows=by_rows)
        units = ""
        if kinds.get("time") in ("integer", "real"):
            name = columns["time"]
            if scaled := with_own_units(engine, sources, name, kinds["time"]):
                engine.drop("raw")
                (sources, units), kinds["time"] = scaled, "real"
                _read_as(engine, sources, columns, kinds)
        for role in ("user_id", "item_id"):
            if kinds[role] == "text":
                _check_text_ids(engine, sources, role, columns[role])
    kinds = {role: "integer" if kind == "short" else kind for role, kind in kinds.items()}
    return Raw(list(sources), kinds, num_dropped, units)


def _check_text_ids(engine: Engine, sources: Sequence[Source], role: str, name: str) -> None:
    """Raise InputError for ids in table ``raw`` that hold a NUL character, which DuckDB's readers
    pass, and for ids that are JSON objects, lists or truth values."""
    count_nul, count_json = engine.row(
        f"SELECT count(CASE WHEN contains({role}, chr(0)) THEN 1 END), count(CASE WHEN "
        f"{role} IN ('true', 'false') OR left({role}, 1) IN ('{{', '[') THEN 1 END) FROM raw"
    )
    for source in sources:
        column = source.columns[name]
        text = f"CAST({column.sql} AS STRING)"
        for where, problem in (
            (count_nul and f"contains({text}, chr(0))", "holds a NUL character"),
            (
                count_json and column.refused,
                "is a JSON object, list or truth value, and ids are text or integers; write the id "
                f"alone, for example with jq -c '.{name} = .{name}.id'",
            ),
        ):
            if where and (found := engine.find_rows(source, where, text)).count:
                raise _error_at(found, name, f"{role} {shown(found.value)} {problem}")


@contextmanager
def naming(sources: Sequence[Source]) -> Iterator[None]:
    """Prefix the names of the sources to an InputError that names none of them."""
    try:
        yield
    except InputError as error:
        if any(source.name in str(error) for source in sources):
            raise
        for source in sources:
            source.check_rows()
        raise InputError(f"{names_of(sources)}: {error}") from None


def like_it(count: int, noun: str) -> str:
    """The number of cases like an error's example: ``3 rows like it``."""
    return f"{counted(count, noun)} like it"


def describe_suspicious_ids(engine: Engine, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Notes on ids in table ``raw`` that are text only because of how numbers are written; empty if
    there are none."""
    problems, selected = [], []
    for role, label in (("user_id", "user ids"), ("item_id", "item ids")):
        as_float = engine.sql.matches.format(text=role, pattern=_AS_FLOAT)
        rounded = engine.sql.matches.format(text=role, pattern=_OF_SPREADSHEET)
        conditions = {
            as_float: "is an integer written as a float",
            rounded: "is rounded, as spreadsheets round long numbers: different ids have become "
            "one; export them as text",
            f"{role} <> trim({role})": "has spaces around it",
        }
        for where, problem in conditions.items() if kinds[role] == "text" else ():
            problems.append((label, problem))
            selected += [f"count(CASE WHEN {where} THEN 1 END)"]
            selected += [f"min(CASE WHEN {where} THEN {role} END)"]
    if not problems:
        return {}
    values = engine.row(f"SELECT {', '.join(selected)} FROM raw")
    found: dict[str, list[str]] = {}
    for (label, problem), count, example in zip(problems, values[::2], values[1::2], strict=True):
        if count:
            problem = f"{shown(example)} {problem} ({like_it(count, 'row')})"
            found.setdefault(label, []).append(problem)
    return {label: f"kept as text: {'; '.join(texts)}" for label, texts in found.items()}


def _without_empty_ids(
    engine: Engine, sources: Sequence[Source], columns: dict[str, str]
) -> tuple[list[Source], int]:
    """The sources without the rows that have an empty id, and the number of these rows."""
    kept, num_dropped, num_rows = [], 0, 0
    for source in sources:
        ids = [source.columns[columns[role]] for role in ("user_id", "item_id")]
        is_whole = " AND ".join(
            f"{column.sql} IS NOT NULL"
            + (f" AND {column.sql} <> ''" if column.storage == "text" else "")
            + (f" AND NOT isnan({column.sql})" if column.storage == "real" else "")
            for column in ids
        )
        kept.append(replace(source, kept=is_whole))
        num_rows += (num_of_source := engine.count(source.relation))
        num_dropped += num_of_source - engine.count(kept[-1].rows_kept)
    if num_rows and num_dropped == num_rows:
        raise InputError(f"{names_of(sources)}: every row has an empty id")
    return kept, num_dropped


def _check_storage(
    sources: Sequence[Source], columns: dict[str, str], empty_ids: EmptyIds | None
) -> None:
    for source in sources:
        # A frame without rows has columns of arbitrary types; `_read_as` refuses it for its rows.
        if isinstance(source, Frame) and not source.table.num_rows:
            continue
        for role, name in columns.items():
            column, allowed = source.columns[name], _ALLOWED[role]
            if column.storage == "real" and empty_ids == "drop":
                continue
            if column.storage not in allowed:
                nouns = [noun for storage, noun in _NOUNS_OF_STORAGE.items() if storage in allowed]
                raise InputError(
                    f"{source.name}: column {shown(name)} is of type {column.type_name:.200}"
                    f"{_HINTS.get(column.storage, '')}; {role} must be {' or '.join(nouns)}"
                    f"{_DROP_EMPTY if column.storage == 'real' and empty_ids else ''}"
                )


def _check_types(sources: Sequence[Source], columns: dict[str, str]) -> None:
    """Raise InputError for a rating, weight or time that is text."""
    for role, type_name in (("rating", "DOUBLE"), ("weight", "DOUBLE"), ("time", "TIMESTAMP")):
        for source in sources if role in columns else ():
            name = columns[role]
            if source.columns[name].storage == "text":
                raise InputError(
                    f"{source.name}: column {shown(name)} is text, and engine spark reads a {role} "
                    "from a column of another type only; write it as Parquet first with "
                    f"CAST({name} AS {type_name}), or prepare it with engine duckdb"
                )


def _read_as(
    engine: Engine,
    sources: Sequence[Source],
    columns: dict[str, str],
    kinds: dict[str, Kind],
    *,
    by_rows: bool = False,
) -> tuple[int, dict[str, int]]:
    """Make ``raw`` with the given kinds. Returns the number of rows and, for each column with
    values that do not fit, the role and the number of those that do."""
    # One SELECT for each file, with columns by name. DuckDB reads the files of one pattern by
    # position, so a file with another order of columns would swap users and items.
    selects = []
    for number, source in enumerate(sources):
        # A window without an order streams, so one thread reads the rows as they stand.
        row = f"{number} * {_MOST_ROWS} + row_number() OVER ()"
        values = {
            "rating": "CAST(0 AS TINYINT)",
            "time": row if by_rows else f"CAST({source.part_number} AS TINYINT)",
            **{
                role: cast(engine.sql, source.columns[name], kinds[role])
                + source.columns[name].scale
                for role, name in columns.items()
            },
        }
        if "event" in values:  # an empty event is no misfit, but a type that nobody keeps
            values["event"] = f"coalesce({values['event']}, '')"
        selected = ", ".join(f"{values[role]} AS {role}" for role in KINDS if role in values)
        selects.append(f"SELECT {selected} FROM {source.rows_kept}")
    engine.make("raw", "\nUNION ALL ".join(selects))
    fitting = ", ".join(f"count({role})" for role in columns)
    num_rows, *num_fitting = engine.row(f"SELECT count(*), {fitting} FROM raw")
    if num_rows == 0:
        raise InputError(f"{names_of(sources)}: has no rows, only column names")
    found = zip(columns, num_fitting, strict=True)
    return num_rows, {role: count for role, count in found if count < num_rows}


def _fitting(
    engine: Engine,
    sources: Sequence[Source],
    name: str,
    chains: Sequence[Sequence[Kind]],
    tried: Kind | None = None,
    num_fitting: int = 0,
) -> tuple[Kind, int]:
    """The kind that most values of column ``name`` fit, and their number; of equal kinds the
    first, or if no kind fits all the widest, that of the chain of ``tried`` before others.

    ``num_fitting`` values are known to fit ``tried``, and so the kinds after it in its chain. No
    other kind fits them.
    """
    kinds = [kind for chain in chains for kind in chain]
    rows = "\nUNION ALL ".join(
        "SELECT "
        + ", ".join(f"{cast(engine.sql, source.columns[name], kind)} AS {kind}" for kind in kinds)
        + f" FROM {source.rows_kept}"
        + (f" WHERE {cast(engine.sql, source.columns[name], tried)} IS NULL" if tried else "")
        for source in sources
    )
    counts = ", ".join(f"count({kind})" for kind in kinds)
    num_rows, *found = engine.row(f"SELECT count(*), {counts} FROM ({rows})")
    wider = next((chain[chain.index(tried) :] for chain in chains if tried in chain), ())
    total = [
        count + num_fitting * (kind in wider) for kind, count in zip(kinds, found, strict=True)
    ]
    if num_rows + num_fitting in total:
        return kinds[total.index(num_rows + num_fitting)], num_rows + num_fitting
    is_wider = (kind in wider for kind in kinds)
    most, _, place = max(zip(total, is_wider, range(len(kinds)), strict=True))
    return kinds[place], most


def _bad_value(
    engine: Engine,
    sources: Sequence[Source],
    role: str,
    name: str,
    kind: Kind,
    empty_ids: EmptyIds | None,
) -> InputError:
    """The error for the first value of column ``name`` that does not fit ``kind``."""
    for source in sources:
        column = source.columns[name]
        text = f"nullif(CAST({column.text or column.sql} AS STRING), '')"
        if column.text is None and column.storage in TIMES:
            # DuckDB crashes as it turns some times into text, so the message has the type only.
            text = f"CASE WHEN {column.sql} IS NOT NULL THEN {quoted(column.type_name)} END"
        misfit = f"{cast(engine.sql, column, kind)} IS NULL"
        found = engine.find_rows(source, misfit, text)
        if not found.count:
            continue
        if found.value is None:
            is_option = empty_ids is not None and role in ("user_id", "item_id")
            advice = _DROP_EMPTY if is_option else _advice(role, "")
            if role == "time":
                advice = NO_TIMES
            found = engine.find_rows(source, f"{text} IS NULL", text)
            return _error_at(found, name, f"{role} is empty", advice)
        advice = _advice(role, found.value)
        if role == "time":
            problem, hint = describe_misfit(engine, sources, source, name, kind, found.value)
            advice = advice or hint
        else:
            problem = f"is not {_NOUNS[kind]}"
        return _error_at(found, name, f"{role} {shown(found.value)} {problem}", advice)
    raise AssertionError(f"{role}: values did not fit, and now they do")


def _error_at(found: Found, name: str, problem: str, advice: str = "") -> InputError:
    """The error for the first of the rows found, whose column ``name`` has a problem."""
    rows = like_it(found.count, "row")
    return InputError(f"{found.place}: {problem} (column {shown(name)}, {rows}){advice}")


def _advice(role: str, example: str) -> str:
    """The advice for a value that fits no kind of its role."""
    if role.endswith("_id") and not example:
        return "; leave such rows out"
    if role.endswith("_id"):
        return (
            f"; mend the column: {role}_type is integer, as given or as in the run of --like, and "
            "one such id would make all of them text"
        )
    if _DECIMAL_COMMA.fullmatch(example):
        return "; write decimals with a point: " + example.replace(",", ".")
    return ""

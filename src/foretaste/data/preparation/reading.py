"""Raw rows, cast and checked; errors about values name the file and line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from foretaste._util.formatting import pluralize, short_repr
from foretaste.data.config import PrepareConfig
from foretaste.data.ids import MAX_BYTES
from foretaste.data.preparation.casts import (
    EMPTY_IDS,
    KINDS,
    KINDS_OF_IDS,
    Kind,
    cast,
    literals,
)
from foretaste.data.preparation.times import (
    NO_TIMES,
    describe_misfit,
    with_clock,
    with_own_units,
    with_time_format,
)
from foretaste.data.sources.source import TIMES, Column, Source, Storage, names_of, sql_literal
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine, FoundRows

_SAMPLE_ROWS = 1000
_MOST_ROWS = 2**40
"""More rows than one source has."""

_IDS: tuple[Storage, ...] = ("text", "integer", "real", "decimal", "uuid")
_NUMBERS: tuple[Storage, ...] = ("text", "integer", "real", "decimal", "wide")
_ALLOWED: dict[str, tuple[Storage, ...]] = {
    "user_id": _IDS,
    "item_id": _IDS,
    "rating": _NUMBERS,
    "time": (*_NUMBERS, *TIMES),
    "weight": _NUMBERS,
    "event": (*_IDS, "truth"),
}
_NOUNS_OF_STORAGE: dict[Storage, str] = {
    "text": "text", "integer": "integers", "wide": "numbers", "moment": "timestamps"
}  # fmt: skip

_NOUNS: dict[Kind, str] = {
    "real": "a finite number",
    "text": "an id",
    "integer": "an integer, the type of these ids",
}
_TRUTH = {
    word: pair[1]
    for pair in (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
    for word in pair
}
"""The word for true, by each word that a column of true and false has."""

_THOUSANDS = re.compile(r"[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+")
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+")
_DROP_EMPTY = (
    "; foretaste prepare --empty-ids drop (empty_ids='drop' in Python) leaves out rows with an "
    "empty id"
)

_TIMES_OF_HISTORIES = "; fix the column, or leave it out if the rows are in order, oldest first"


class Raw(NamedTuple):
    """The sources of table ``raw``, and the kinds of its columns."""

    sources: list[Source]
    """The sources in their read form: registered, without the dropped rows."""

    kinds: dict[str, Kind]
    """The kind of each column, by role."""

    num_dropped: int
    """The number of rows dropped for an empty id."""

    units_of_times: str = ""
    """The units of the sources' times in words, if they differed and became microseconds."""

    unread_times: str = ""
    """The message about unreadable times, which are left out; otherwise empty."""


def read_raw(
    engine: Engine,
    sources: Sequence[Source],
    columns: dict[str, str],
    config: PrepareConfig | None = None,
    *,
    time_format: str | None = None,
    may_lack_times: bool = False,
) -> Raw:
    """Make table ``raw`` of the columns given by role.

    If a role has no column, ``rating`` is 0, ``time`` is 0 or, if the rows are in order, the number
    of the row, and ``weight`` and ``event`` are absent. ``part`` is the number of the source's
    part, if the split has several. With role ``clock``, the column of ``time`` has dates, and both
    are joined. ``time_format`` is the format of times stored as text. Without ``config``, the rows
    are in order, and messages advise no setting of empty ids. Raises InputError with file, line and
    example for a missing value, and for a value of no kind of its role. With ``may_lack_times``,
    unreadable times are left out.
    """
    columns, unread_times = dict(columns), ""
    if "clock" in columns:
        sources = with_clock(engine, sources, columns["time"], columns.pop("clock"))
    num_dropped = 0
    with prefix_errors(sources):
        sources = engine.register(sources)
        if may_lack_times and "time" in columns:
            try:
                _check_columns(engine, sources, {"time": columns["time"]})
            except InputError as error:
                unread_times = str(error)
                del columns["time"]
        _check_columns(engine, sources, columns)
        chains = KINDS
        if config is not None:
            chains = KINDS | {
                "user_id": KINDS_OF_IDS[config.user_id_type],
                "item_id": KINDS_OF_IDS[config.item_id_type],
            }
            if config.empty_ids == "drop":
                values = config.empty_values or ()
                sources, num_dropped = _without_empty_ids(engine, sources, columns, values)
        if time_format is not None and "time" in columns:
            sources = with_time_format(engine, sources, columns["time"], time_format)
        kinds, misfit = _read_fitting(
            engine, sources, columns, chains, config, may_lack_times=may_lack_times
        )
        unread_times = unread_times or misfit
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
    return Raw(list(sources), kinds, num_dropped, units, unread_times.removesuffix(NO_TIMES))


def _read_fitting(
    engine: Engine,
    sources: Sequence[Source],
    columns: dict[str, str],
    chains: Mapping[str, Sequence[Sequence[Kind]]],
    config: PrepareConfig | None,
    *,
    may_lack_times: bool,
) -> tuple[dict[str, Kind], str]:
    """Make ``raw`` with the first kinds that fit all values; returns the kinds by role.

    Raises InputError if a value fits no kind of its role. If ``may_lack_times``, a time that fits
    none is no error: ``columns`` and the kinds lose the role, and the message is returned too.
    """
    by_rows, unread_times = config is None or config.order == "rows", ""
    kinds = _kinds_of_sample(engine, sources, columns, chains)
    num_rows, misfits = _read_as(engine, sources, columns, kinds, by_rows=by_rows)
    for role, num_fitting in misfits.items():
        num_others, found = _count_fitting(
            engine, sources, {role: columns[role]}, chains, kinds[role]
        )
        kind, num_fitting = _most_fitting(
            chains[role], num_others, found[role], kinds[role], num_fitting
        )
        if num_fitting == num_rows:
            kinds[role] = kind
            continue
        problem = _bad_value(engine, sources, role, columns[role], kind, config)
        if role != "time" or not may_lack_times:
            raise problem
        unread_times = str(problem)
        del columns[role], kinds[role]
    if misfits:
        engine.drop("raw")
        _read_as(engine, sources, columns, kinds, by_rows=by_rows)
    return kinds, unread_times


def _kinds_of_sample(
    engine: Engine,
    sources: Sequence[Source],
    columns: Mapping[str, str],
    chains: Mapping[str, Sequence[Sequence[Kind]]],
) -> dict[str, Kind]:
    """Return the kinds that the first rows suggest; a later value may not fit."""
    for source in sources:
        start = f"(SELECT * FROM {source.rows_kept} LIMIT {_SAMPLE_ROWS})"
        sample = [replace(source, relation=start, condition="")]
        num_rows, found = _count_fitting(engine, sample, columns, chains)
        if num_rows:
            break
    return {role: _most_fitting(chains[role], num_rows, found[role])[0] for role in columns}


def _check_text_ids(engine: Engine, sources: Sequence[Source], role: str, name: str) -> None:
    """Raise InputError for ids in table ``raw`` that have a NUL character, because DuckDB's readers
    accept it, and for ids that are JSON objects, lists or truth values."""
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
                "is a JSON object, list or truth value, and ids are text or integers: write the "
                "id alone",
            ),
        ):
            if where and (found := engine.find_rows(source, where, text)).count:
                problem = f"{role} {short_repr(found.value)} {problem}"
                key = re.match(r'\{\s*("[^"\\\']+")\s*:', found.value or "")
                advice = key and f"jq -c '.{name} = .{name}[{key[1]}]' does this"
                raise error_at(found, name, problem, f"; {advice}" if advice else "")


@contextmanager
def prefix_errors(sources: Sequence[Source]) -> Iterator[None]:
    """Prefix the names of the sources to an InputError that names no source."""
    try:
        yield
    except InputError as error:
        if any(source.name in str(error) for source in sources):
            raise
        for source in sources:
            source.check_rows()
        raise InputError(f"{names_of(sources)}: {error}") from None


def _without_empty_ids(
    engine: Engine, sources: Sequence[Source], columns: dict[str, str], empty_values: Sequence[str]
) -> tuple[list[Source], int]:
    """Return the sources without the rows with an empty id, and the number of these rows."""
    kept, num_dropped, num_rows = [], 0, 0
    for source in sources:
        is_whole = " AND ".join(
            _is_id(engine, source.columns[columns[role]], empty_values)
            for role in ("user_id", "item_id")
        )
        kept.append(replace(source, condition=is_whole))
        num_rows += (num_of_source := engine.count(source.relation))
        num_dropped += num_of_source - engine.count(kept[-1].rows_kept)
    if num_rows and num_dropped == num_rows:
        raise InputError(f"{names_of(sources)}: every row has an empty id")
    return kept, num_dropped


def _is_id(engine: Engine, column: Column, empty_values: Sequence[str]) -> str:
    """Return the SQL condition that an id is neither missing nor empty nor in ``empty_values``."""
    is_id = f"NOT ({_is_missing(column)})"
    if column.storage == "text":
        return f"{is_id} AND {column.sql} NOT IN ({literals([*EMPTY_IDS, *empty_values])})"
    if not empty_values:
        return is_id
    # A value that is no id is NULL as text. Its row is refused, not dropped.
    text = cast(engine.sql, column, "text")
    return f"{is_id} AND coalesce({text} NOT IN ({literals(empty_values)}), TRUE)"


def _is_missing(column: Column) -> str:
    """Return the SQL condition of the rows without a value."""
    is_nan = f" OR isnan({column.sql})" if column.storage == "real" else ""
    return f"{column.sql} IS NULL{is_nan}"


def _check_columns(engine: Engine, sources: Sequence[Source], columns: dict[str, str]) -> None:
    """Raise InputError for a column of a type that its role cannot have."""
    check_storage(engine, sources, columns)
    if not engine.reads_numbers_of_text:
        _check_types(sources, columns)


def check_storage(engine: Engine, sources: Sequence[Source], columns: dict[str, str]) -> None:
    """Raise InputError for a column of a type that its role cannot have, if the column has rows."""
    for source in sources:
        for role, name in columns.items():
            column, allowed = source.columns[name], _ALLOWED[role]
            if column.storage not in allowed and engine.count(source.relation):
                nouns = [noun for storage, noun in _NOUNS_OF_STORAGE.items() if storage in allowed]
                raise InputError(
                    f"{source.name}: column {short_repr(name)} is of type {column.type_name:.200}; "
                    f"{role} must be {' or '.join(nouns)}{_type_advice(role, name, column)}"
                )


def _type_advice(role: str, name: str, column: Column) -> str:
    """Return the advice for a column of a type that its role cannot have."""
    if role == "time":
        return ""
    if column.storage == "truth" and not role.endswith("_id"):
        return _truth_advice(name, "true")
    if "binary" in column.type_name:
        how = f"frame[{name!r}].map(bytes.hex) in pandas, hex({name}) in SQL"
    else:
        how = f"frame[{name!r}].astype(str) in pandas, CAST({name} AS VARCHAR) in SQL"
    return f"; turn its values into text first: {how}"


def _check_types(sources: Sequence[Source], columns: dict[str, str]) -> None:
    """Raise InputError for a rating, weight or time that is text."""
    for role, type_name in (("rating", "DOUBLE"), ("weight", "DOUBLE"), ("time", "TIMESTAMP")):
        for source in sources if role in columns else ():
            name = columns[role]
            if source.columns[name].storage == "text":
                raise InputError(
                    f"{source.name}: column {short_repr(name)} is text, and engine spark reads a "
                    f"{role} from a column of another type only; write it as Parquet first with "
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
    """Make ``raw`` with the given kinds. Returns the number of rows, and the number of fitting
    values by role, without columns whose values all fit."""
    # Each file has its own SELECT, with columns by name. DuckDB reads the files of one pattern by
    # position, so a file with another order of columns would swap users and items.
    selects = []
    for number, source in enumerate(sources):
        # A window without an order streams, so one thread reads the rows in their order.
        row = f"{number} * {_MOST_ROWS} + row_number() OVER ()"
        values = {
            "rating": "CAST(0 AS TINYINT)",
            "time": row if by_rows else "CAST(0 AS TINYINT)",
            **{
                role: cast(engine.sql, source.columns[name], kinds[role])
                for role, name in columns.items()
            },
        }
        if "event" in values:  # an empty event is no misfit but a type that nobody keeps
            column = source.columns[columns["event"]]
            empty = (
                "''" if column.storage == "text" else f"CASE WHEN {_is_missing(column)} THEN '' END"
            )
            values["event"] = f"coalesce({values['event']}, {empty})"
        if any(source.part_number for source in sources):
            values["part"] = f"CAST({source.part_number} AS TINYINT)"
        selected = ", ".join(
            f"{values[role]} AS {role}" for role in (*KINDS, "part") if role in values
        )
        selects.append(f"SELECT {selected} FROM {source.rows_kept}")
    engine.make("raw", "\nUNION ALL ".join(selects))
    fitting = ", ".join(f"count({role})" for role in columns)
    num_rows, *num_fitting = engine.row(f"SELECT count(*), {fitting} FROM raw")
    if num_rows == 0:
        raise InputError(f"{names_of(sources)}: has no rows, only column names")
    found = zip(columns, num_fitting, strict=True)
    return num_rows, {role: count for role, count in found if count < num_rows}


def _count_fitting(
    engine: Engine,
    sources: Sequence[Source],
    columns: Mapping[str, str],
    chains: Mapping[str, Sequence[Sequence[Kind]]],
    tried: Kind | None = None,
) -> tuple[int, dict[str, dict[Kind, int]]]:
    """Return the number of rows, and the number of values that fit each kind, by role.

    With ``tried``, only rows without a value of this kind count.
    """
    kinds = [(role, kind) for role in columns for chain in chains[role] for kind in chain]
    selects = []
    for source in sources:
        of = {role: source.columns[name] for role, name in columns.items()}
        values = (f"{cast(engine.sql, of[role], kind)} AS {role}_{kind}" for role, kind in kinds)
        misfits = (f"{cast(engine.sql, column, tried)} IS NULL" for column in of.values() if tried)
        where = " AND ".join(misfits) or "true"
        selects.append(f"SELECT {', '.join(values)} FROM {source.rows_kept} WHERE {where}")
    counts = ", ".join(f"count({role}_{kind})" for role, kind in kinds)
    rows = "\nUNION ALL ".join(selects)
    num_rows, *counted = engine.row(f"SELECT count(*), {counts} FROM ({rows})")
    found: dict[str, dict[Kind, int]] = {role: {} for role in columns}
    for (role, kind), count in zip(kinds, counted, strict=True):
        found[role][kind] = count
    return num_rows, found


def _most_fitting(
    chains: Sequence[Sequence[Kind]],
    num_rows: int,
    found: Mapping[Kind, int],
    tried: Kind | None = None,
    num_fitting: int = 0,
) -> tuple[Kind, int]:
    """Return the kind that most values of a column fit, and their number.

    Among equal kinds the first wins if it fits all values, otherwise the widest, in the chain of
    ``tried`` if possible. ``found`` has the number of the ``num_rows`` values that fit each kind.
    ``num_fitting`` more values are known to fit ``tried``, and therefore the kinds after it in its
    chain. No other kind fits these values.
    """
    kinds = list(found)
    wider = next((chain[chain.index(tried) :] for chain in chains if tried in chain), ())
    total = [count + num_fitting * (kind in wider) for kind, count in found.items()]
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
    config: PrepareConfig | None,
) -> InputError:
    """Return the error for the first value of column ``name`` that does not fit ``kind``."""
    for source in sources:
        column = source.columns[name]
        text = f"nullif({column.stored_text}, '')"
        if role.endswith("_id"):
            is_id = _is_id(engine, column, ())
            text = f"CASE WHEN {is_id} THEN CAST({column.sql} AS STRING) END"
        if column.text is None and column.storage in TIMES:
            # The message has only the type.
            text = f"CASE WHEN {column.sql} IS NOT NULL THEN {sql_literal(column.type_name)} END"
        misfit = f"{cast(engine.sql, column, kind)} IS NULL"
        found = engine.find_rows(source, misfit, text)
        if not found.count:
            continue
        if found.value is None:
            advice = _advice(role, name, column, kind, "")
            if role == "time":
                advice = NO_TIMES if config is not None else _TIMES_OF_HISTORIES
            elif role.endswith("_id") and config is None:
                advice = "; leave these rows out"
            found = engine.find_rows(source, f"{text} IS NULL", text)
            return error_at(found, name, f"{role} is empty", advice)
        advice = _advice(role, name, column, kind, found.value)
        if role == "time":
            problem, hint = describe_misfit(engine, sources, source, name, kind, found.value)
            if config is None:
                hint = hint.replace(NO_TIMES, _TIMES_OF_HISTORIES)
            advice = advice or hint
        else:
            problem = f"is not {_NOUNS[kind]}"
            if kind == "text" and (num_bytes := len(found.value.encode())) > MAX_BYTES:
                problem = f"has {num_bytes:,} bytes; an id has at most {MAX_BYTES:,}"
                advice = ""
        return error_at(found, name, f"{role} {short_repr(found.value)} {problem}", advice)
    raise AssertionError(f"{role}: values did not fit, and now they do")


def error_at(found: FoundRows, name: str, problem: str, advice: str = "") -> InputError:
    """Return the error for the first of the found rows, whose column ``name`` has a problem."""
    rows = pluralize(found.count, "row")
    return InputError(
        f"{found.place}: {problem} (column {short_repr(name)}, {rows} like it){advice}"
    )


def _advice(role: str, name: str, column: Column, kind: Kind, example: str) -> str:
    """Return the advice for a value that fits no kind of its role."""
    if role.endswith("_id") and example in EMPTY_IDS:
        return _DROP_EMPTY
    if role == "event" or (role.endswith("_id") and kind == "text"):
        return _type_advice(role, name, column)
    if role.endswith("_id"):
        return (
            f"; fix the column: {role}_type is integer, given or from the run of --like, and this "
            "id would make all ids text"
        )
    if _THOUSANDS.fullmatch(example) or _DECIMAL_COMMA.fullmatch(example):
        return _advice_on_comma(example)
    word = "" if role == "time" else _TRUTH.get(example.lower(), "")
    if example.istitle():
        word = word.title()
    return _truth_advice(name, word.upper() if example.isupper() else word)


def _advice_on_comma(number: str) -> str:
    """Return the advice for a number with commas, which separate decimals or thousands."""
    plain, decimal = number.replace(",", ""), number.replace(",", ".")
    if not _THOUSANDS.fullmatch(number):
        return f"; write decimals with a point: {decimal}"
    if number.count(",") > 1:
        return f"; write thousands without a comma: {plain}"
    return f"; write {plain} if the comma separates thousands, {decimal} if it separates decimals"


def _truth_advice(name: str, word: str) -> str:
    """Return the advice for a column of true and false, which writes true as ``word``."""
    return word and (
        f"; --event-column {shlex.quote(name)} --events {word} keeps the rows with {word} "
        f"(event_column={name!r}, events=[{word!r}] in Python)"
    )

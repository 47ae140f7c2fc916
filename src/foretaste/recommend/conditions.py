"""Conditions on items: SQL that is checked before DuckDB binds it, and evaluated by a deadline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.documents import Document
from foretaste._util.formatting import short_repr
from foretaste.errors import SettingError

if TYPE_CHECKING:
    import duckdb

DEADLINE_S = 10.0
"""Longest evaluation of one condition. A million items take well below a second."""

# The zones that preparation reads.
_ZONED = "regexp_matches({text}, ':[0-9:.]* ?([-+][0-9:]+|Z|UTC|GMT|[A-Za-z_]+/.*) *$')"
_CLOSE_ZONE = "replace(replace({text}, ' +', '+'), ' -', '-')"
_TYPES = {
    # A cast alone would read 1_000 as 1000, and round 77.5 to 78.
    "BIGINT": "TRY_CAST(CASE WHEN regexp_full_match({text}, '-?(0|[1-9][0-9]*)') THEN {text} END "
    "AS BIGINT)",
    # A cast would make numbers of 05 and 007, which are codes.
    "DOUBLE": "TRY_CAST(CASE WHEN NOT regexp_matches({text}, '^[-+]?0[0-9]') THEN {text} END AS "
    "DOUBLE)",
    "BOOLEAN": "CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END",
    # A cast alone would drop an offset, and read 12:00+05:00 as 12:00.
    "TIMESTAMP": f"TRY_CAST(CASE WHEN NOT {_ZONED} THEN {{text}} END AS TIMESTAMP)",
    "TIMESTAMPTZ": f"TRY_CAST(CASE WHEN {_ZONED} THEN {_CLOSE_ZONE} END AS TIMESTAMPTZ)",
    "VARCHAR": "{text}",
}
"""SQL that casts text, by type; a column gets the first type that fits all its values."""

_EXPRESSIONS = {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT"),
    *("FUNCTION", "LAMBDA", "OPERATOR", "TYPE"),
}
"""Classes of expressions in DuckDB's parse tree that a condition may have. All other classes are
refused, also those that a later DuckDB adds."""

_REFUSED_FUNCTIONS = {
    # A short text asks for gigabytes, and one value that grows cannot be interrupted.
    *("array_resize", "bitstring", "format", "generate_series", "list_resize", "lpad", "printf"),
    *("range", "repeat", "rpad"),
    # They bind SQL of their own, or read the bytes of DuckDB's internal values.
    *("combine", "finalize", "json_deserialize_sql", "json_serialize_plan", "json_serialize_sql"),
    *("to_aggregate_state", "variant_bytes_to_variant"),
}

_LONGEST_REPLACEMENT = 8
"""Characters that may take the place of others. Nested, long replacements make gigabytes of a title
in memory that DuckDB's limit does not count."""


class ItemColumns:
    """The columns of items in a database of their own, which evaluates conditions on them."""

    def __init__(self, texts: pa.Table) -> None:
        """``texts`` are the ids, and all other columns as text, with NULL for missing values."""
        self._texts = texts
        self._notes: dict[str, str] = {}
        """Hints on columns, by name, for errors of conditions on them."""

    def __getstate__(self) -> dict[str, object]:
        # The database is not pickled, but made again from the texts.
        return {name: value for name, value in self.__dict__.items() if name != "_database"}

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        """A connection to a database with the view ``items``, whose columns have types."""
        import duckdb

        from foretaste.data.sources.source import identifier

        # No option reaches a file, a network or a Python object, and none can be changed.
        memory_mib = 256 + 4 * (self._texts.nbytes >> 20)
        database = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "enable_external_access": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
                "memory_limit": f"{memory_mib}MiB",
            },
        )
        # Globally, because each cursor is a new connection without the settings of this session.
        database.execute("SET GLOBAL TimeZone = 'UTC'")
        index = pa.array(np.arange(len(self._texts)))
        database.register("given", self._texts.append_column("item_index", index))
        database.execute("CREATE TABLE texts AS SELECT * FROM given")
        database.unregister("given")
        selected = ["item_index", "item_id"]
        for name in self._texts.column_names[1:]:
            casts = {kind: sql.format(text=identifier(name)) for kind, sql in _TYPES.items()}
            counts = ", ".join(f"count({sql})" for sql in casts.values())
            values = database.execute(f"SELECT {counts} FROM texts").fetchone()
            found = dict(zip(casts, values, strict=True))
            # A column without values is NULL, which compares with numbers and with text. The last
            # type is text, which fits all of them.
            kind = next(kind for kind in casts if found[kind] == found["VARCHAR"])
            selected.append(f"{casts[kind] if found['VARCHAR'] else 'NULL'} AS {identifier(name)}")
            if found["TIMESTAMP"] and found["TIMESTAMP"] + found["TIMESTAMPTZ"] == found["VARCHAR"]:
                self._notes[name] = " (some of its times have a UTC offset, and some have none)"
        database.execute(f"CREATE VIEW items AS SELECT {', '.join(selected)} FROM texts")
        # The list of all functions takes 15 ms, so it is read once.
        database.execute(
            "CREATE TABLE functions AS SELECT DISTINCT function_name, function_type, stability, "
            "macro_definition FROM duckdb_functions() WHERE function_type NOT IN ('table', "
            "'pragma')"
        )
        database.execute("SET GLOBAL lock_configuration = true")
        return database

    def mask(self, what: str, condition: str) -> NDArray[np.bool_]:
        """Return True for items that meet a condition, [num_items].

        SettingError that begins with ``what`` for SQL that is no condition, or that takes longer
        than `DEADLINE_S`.
        """
        import duckdb

        what = f"{what}, {short_repr(condition)}"
        try:
            kind, found = self._by_deadline(condition)
        except TimeoutError:
            raise SettingError(f"{what}: is not evaluated within {DEADLINE_S:g} s") from None
        except SettingError as error:
            raise SettingError(f"{what}: {error}") from None
        except duckdb.Error as error:
            reason = str(error).strip().split("\n", 1)[0]
            if missing := re.search(r'column "(.+?)" not found', reason):
                reason = f"there is no column {missing[1]}"
            raise SettingError(f"{what}: {reason}; {self._describe_columns()}") from None
        if kind != "BOOLEAN":
            raise SettingError(f"{what}: is no condition, true or false for each item")
        is_met = np.zeros(len(self._texts), dtype=bool)
        # Match values by index, because SQL promises no order of rows. NULL is false: an item
        # without a value meets nothing.
        is_met[found["item_index"]] = np.ma.filled(found["is_met"], False)
        return is_met

    def _by_deadline(self, condition: str) -> tuple[str, Document]:
        """Return a condition's type and its values by item_index; TimeoutError if it takes long."""
        cursor = self._database.cursor()
        outcome: Future[tuple[str, Document]] = Future()

        def work() -> None:
            try:
                outcome.set_result(evaluate_condition(cursor, condition))
            except BaseException as error:
                outcome.set_exception(error)

        # The thread is a daemon: DuckDB interrupts no single value, and the end of the process must
        # not wait.
        Thread(target=work, name="condition", daemon=True).start()
        try:
            return outcome.result(DEADLINE_S)
        except TimeoutError:
            cursor.interrupt()
            raise

    def _describe_columns(self) -> str:
        """Return a phrase with the columns of the items and their types."""
        described = self._database.cursor().execute("DESCRIBE items").fetchall()
        columns = [
            f"{name} {kind}{self._notes.get(name, '') if kind == 'VARCHAR' else ''}"
            for name, kind, *_ in described
            if name != "item_index"
        ]
        return f"the items have {', '.join(columns)}"


def _query(condition: str) -> str:
    # The condition has a line of its own, because it may end in a -- comment.
    return f"SELECT item_index, (\n{condition}\n) AS is_met FROM items"


def evaluate_condition(cursor: duckdb.DuckDBPyConnection, condition: str) -> tuple[str, Document]:
    """Return the type of a condition and its values by item_index, if its parse tree is allowed."""
    check_condition(cursor, condition)
    result = cursor.execute(_query(condition))
    return str(result.description[1][1]), result.fetchnumpy()


def check_condition(cursor: duckdb.DuckDBPyConnection, condition: str) -> None:
    """Raise SettingError unless a condition is one expression over the columns of one item."""
    # EXPLAIN would be no such check: it binds, which runs table functions and folds constants.
    expression, statement = _parse(cursor, condition)
    for one in _expressions(expression):
        kind = one["class"]
        if kind not in _EXPRESSIONS:
            _refuse(kind.replace("_", " ").lower())
        if kind == "FUNCTION":
            _check_function(cursor, one["function_name"])
            _check_replacement(one)
    if statement != _parse(cursor, "true")[1]:
        raise SettingError("is no condition, but several expressions or statements")


def _check_function(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raise SettingError unless a function gives one value for one item, the same each time."""
    rows = cursor.execute(
        "SELECT function_type, stability, macro_definition FROM functions "
        "WHERE lower(function_name) = lower(?)",
        [name],
    ).fetchall()
    is_hidden = name.lower() in _REFUSED_FUNCTIONS or name.startswith("__internal")
    if is_hidden or not rows:
        _refuse(f"function {name}")
    for kind, stability, macro in rows:
        if kind == "macro":
            check_condition(cursor, macro)
        elif kind != "scalar" or stability == "VOLATILE":
            _refuse(f"function {name}")


def _check_replacement(function: dict[str, Any]) -> None:
    """Raise SettingError if a function may replace text by much longer text."""
    if function["function_name"].lower() not in ("replace", "regexp_replace"):
        return
    # In a method call, title.replace('a', 'b'), the text itself is not among the arguments.
    first = 1 if function["schema"] else 2
    for argument in function["arguments"][first:]:
        one = argument["expression"]
        if one["class"] != "CONSTANT" or len(one["literal"]["text"]) > _LONGEST_REPLACEMENT:
            _refuse(f"replacement but a value of at most {_LONGEST_REPLACEMENT} characters")


def _refuse(what: str) -> None:
    raise SettingError(
        f"a condition has no {what}, only the columns of one item, values and functions of them; "
        "write what needs more into a column of the items file"
    )


def _parse(cursor: duckdb.DuckDBPyConnection, condition: str) -> tuple[Any, Any]:
    """Return the parse trees of a condition and of its statement, neither bound nor run."""
    (text,) = cursor.execute("SELECT json_serialize_sql(?)", [_query(condition)]).fetchone()
    try:
        tree = json.loads(text, object_hook=_without_places)
    except RecursionError:
        raise SettingError("is nested too deeply") from None
    if tree["error"]:
        raise SettingError(tree["error_message"].partition("\n")[0])
    selected = tree["statements"][0]["node"].get("select_list")
    expression = None
    if selected and len(selected) == 2:
        expression, selected[1] = selected[1], selected[1].get("alias")
    return expression, tree


def _without_places(node: Document) -> Document:
    """Return a node of a parse tree without its position in the text."""
    return {name: value for name, value in node.items() if not name.startswith("query_location")}


def _expressions(tree: Any) -> Iterator[Document]:
    """Yield all expressions of a parse tree."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "class" in one:
                yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one

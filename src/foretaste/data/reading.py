"""Raw rows, cast and checked: whatever is wrong with a value is said with its file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from foretaste._util.formatting import shown
from foretaste.data.bad_values import bad_value, error_at
from foretaste.data.casts import KINDS, Kind, cast
from foretaste.data.engine import Engine
from foretaste.data.scans import Column, Scan, Storage
from foretaste.data.time_formats import with_time_format
from foretaste.errors import InputError

_SAMPLE_ROWS = 1000
_TIMES: tuple[Storage, ...] = ("moment", "moment_ns", "instant", "instant_ns")
_HINTS: dict[Storage, str] = {
    "real": " (a missing id makes all of them floats: leave its row out, then make them integers)",
    "wide": " (more than 38 digits)",
}


def read_raw(
    engine: Engine,
    scans: Sequence[Scan],
    columns: dict[str, str],
    time_format: str | None = None,
) -> dict[str, Kind]:
    """Make table ``raw`` of the columns given by role, and say what kind each was found to be.

    Without columns of their own, ``rating`` is 0 and ``time`` the scan's place in a split; times
    that are text are read by ``time_format``. Raises InputError naming file, line and an example
    where a value is missing or not of any kind its role may have.
    """
    _check_storage(scans, columns)
    with naming(scans):
        for scan in scans:
            engine.know(scan)
        if time_format is not None and "time" in columns:
            scans = with_time_format(engine, scans, columns["time"], time_format)
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
    while short := _read_as(engine, scans, columns, kinds):
        for role in short:
            wider = _wider(role, kinds[role])
            if wider is None:
                raise bad_value(engine, scans, role, columns[role], kinds[role])
            kinds[role] = wider
        engine.drop("raw")
    _refuse_nul(engine, scans, columns, kinds)
    return _without_short(kinds)


def _wider(role: str, kind: Kind) -> Kind | None:
    """The next of the kinds that a value of ``kind`` fits too; None after the last of them."""
    (row,) = (row for row in KINDS[role] if kind in row)
    return dict(pairwise(row)).get(kind)


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
    casts = {role: cast(scan.columns[name], kinds[role]) for role, name in columns.items()}
    constants = {"rating": _constant(0), "time": _constant(scan.place)}
    return ", ".join(f"{(constants | casts)[role]} AS {role}" for role in KINDS)


def _constant(value: int) -> str:
    return f"CAST({value} AS TINYINT)"


def _guess(engine: Engine, column: Column, scan: Scan, role: str) -> Kind:
    """The kind that most of the first rows fit, the narrowest of several."""
    kinds = [kind for row in KINDS[role] for kind in row]
    fits = ", ".join(f"count({cast(column, kind)})" for kind in kinds)
    sample = f"(SELECT * FROM {scan.relation} LIMIT {_SAMPLE_ROWS})"
    num_fitting = dict(zip(kinds, engine.row(f"SELECT {fits} FROM {sample}"), strict=True))
    return max(num_fitting, key=lambda kind: num_fitting[kind])


def _check_storage(scans: Sequence[Scan], columns: dict[str, str]) -> None:
    allowed: dict[str, set[Storage]] = {
        "user_id": {"text", "integer"},
        "item_id": {"text", "integer"},
        "rating": {"text", "integer", "real", "decimal", "wide"},
        "time": {"text", "integer", "real", "decimal", *_TIMES},
    }
    for scan in scans:
        # Columns of a frame without rows may be of any type.
        if scan.frame is not None and not scan.frame.num_rows:
            continue
        for role, name in columns.items():
            column = scan.columns[name]
            if column.storage not in allowed[role]:
                hint = _HINTS.get(column.storage, "")
                raise InputError(
                    f"{scan.name}: column {shown(name)} is of type {column.type_name:.200}{hint}; "
                    f"{role} must be {_either(allowed[role])}"
                )


def _either(allowed: set[Storage]) -> str:
    words: dict[Storage, str] = {
        "text": "text", "integer": "integers", "real": "numbers", "moment": "timestamps"
    }  # fmt: skip
    return " or ".join(words[storage] for storage in words if storage in allowed)


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
                raise error_at(scan, columns[role], example, problem, count)

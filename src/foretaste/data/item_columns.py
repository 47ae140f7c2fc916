"""Titles and whatever else is known of items, from a file or frame of its own."""

from __future__ import annotations

from typing import Any

from foretaste.data.columns import find_item_column, find_spelling
from foretaste.data.engine import Engine
from foretaste.data.sources import Scan, open_scans
from foretaste.errors import InputError

_RESERVED = frozenset({"id", "item_id", "item_index", "described_id"})


def read_item_columns(engine: Engine, items: Any, item_column: str | None) -> list[str]:
    """Make table ``described`` of the item columns; their names as SQL identifiers.

    Every value is kept as text. The column that looks like a title is called ``title``. Raises
    InputError where the item id is not to be found, or one id comes twice.
    """
    (scan, *more) = open_scans(items)
    if more:
        raise InputError(f"items must be one file, got {len(more) + 1}")
    if scan.frame is not None:
        engine.register(scan.relation, scan.frame)
    key = find_item_column(list(scan.columns), item_column, scan.name)
    names = _names(scan, key)
    selected = "".join(
        f", CAST({scan.columns[name].sql} AS VARCHAR) AS {quoted_name}"
        for name, quoted_name in names.items()
    )
    engine.run(
        f"CREATE TABLE described AS SELECT CAST({scan.columns[key].sql} AS VARCHAR) "
        f"AS described_id{selected} FROM {scan.relation}"
    )
    _refuse_repeats(engine, scan, key)
    return list(names.values())


def _names(scan: Scan, key: str) -> dict[str, str]:
    """Every column but the key, and what it is called in items.parquet."""
    title = find_spelling(list(scan.columns), "title", scan.name)
    names: dict[str, str] = {}
    for name in scan.columns:
        kept = "title" if name == title else name
        if name != key and kept.lower() not in _RESERVED:
            names[name] = '"' + kept.replace('"', '""') + '"'
    return names


def _refuse_repeats(engine: Engine, scan: Scan, key: str) -> None:
    count, example = engine.row(
        "SELECT count(*), min(described_id) FROM (SELECT described_id FROM described "
        "WHERE described_id IS NOT NULL GROUP BY described_id HAVING count(*) > 1)"
    )
    if count:
        raise InputError(
            f"{scan.locate(key, example)}: item {example!r} is there more than once "
            f"(column {key!r}, {count:,} items like it); keep one row of each"
        )

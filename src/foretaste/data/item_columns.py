"""Titles and whatever else is known of items, from a file or frame of its own."""

from __future__ import annotations

from typing import Any

from foretaste.checks import shown
from foretaste.data import steps
from foretaste.data.columns import find_description, find_item_column
from foretaste.data.config import FileFormat
from foretaste.data.engine import Engine
from foretaste.data.reading import like_it, naming
from foretaste.data.sources import Scan, check_format_acts, identifier, open_scans
from foretaste.errors import InputError

# Columns of these names are left out, as are repeats of a name in another case.
_RESERVED = frozenset({"", "id", "item_id", "item_index", "described_id"})


def open_item_scan(items: Any, format: FileFormat) -> Scan:
    """The one file or frame that describes items; InputError where there are several."""
    scans = open_scans(items, format)
    check_format_acts(format, scans)
    if len(scans) > 1:
        raise InputError(f"items must be one file, and {items} names {len(scans)}")
    return scans[0]


def read_item_columns(engine: Engine, scan: Scan | None, item_column: str | None) -> list[str]:
    """Make table ``described`` of the item columns; how a query names each of them.

    Every value is kept as text. The column that looks like a title is called ``title``. Raises
    InputError where the item id is not to be found, or one id comes twice.
    """
    if scan is None:
        return []
    key = find_item_column(list(scan.columns), item_column, scan.name, scan.header)
    names = _names(scan, key)
    selected = "".join(
        f", CAST({scan.columns[name].sql} AS VARCHAR) AS {sql}" for name, sql in names.items()
    )
    described = f"SELECT CAST({scan.columns[key].sql} AS VARCHAR) AS described_id{selected}"
    with naming([scan]):
        engine.know(scan)
        engine.make("described", f"{described} FROM {scan.relation}")
    _refuse_repeats(engine, scan, key)
    return [f"described.{sql}" for sql in names.values()]


def check_described(engine: Engine, scan: Scan | None) -> None:
    """Raise InputError where the file of items describes none of those that were kept."""
    if scan is None:
        return
    num_found, kept = engine.row(
        f"SELECT count(described_id), min(CAST(item_id AS STRING)) FROM items{steps.DESCRIBED}"
    )
    if num_found == 0:
        (found,) = engine.row("SELECT min(described_id) FROM described")
        raise InputError(
            f"{scan.name}: describes none of the items that were kept: its ids are such as "
            f"{shown(found)}, theirs such as {shown(kept)}; give the file of these items, or "
            "leave it out"
        )


def _names(scan: Scan, key: str) -> dict[str, str]:
    """Every column but the key, and what it is called in items.parquet."""
    title = find_description(list(scan.columns), "title", scan.name)
    taken = set(_RESERVED)
    names: dict[str, str] = {}
    for name in scan.columns:
        kept = "title" if name == title else name
        if name != key and kept.lower() not in taken:
            taken.add(kept.lower())
            names[name] = identifier(kept)
    return names


def _refuse_repeats(engine: Engine, scan: Scan, key: str) -> None:
    count, example = engine.row(
        "SELECT count(*), min(described_id) FROM (SELECT described_id FROM described "
        "WHERE described_id IS NOT NULL GROUP BY described_id HAVING count(*) > 1)"
    )
    if count:
        raise InputError(
            f"{scan.locate(key, example)}: item {shown(example)} is there more than once "
            f"(column {shown(key)}, {like_it(count, 'item')}); keep one row of each"
        )

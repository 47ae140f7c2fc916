"""Titles and whatever else is known of items, from a file or frame of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretaste._util.formatting import counted, shown
from foretaste.data import steps
from foretaste.data.bad_values import like_it
from foretaste.data.columns import find_item_column, find_title, no_title
from foretaste.data.config import FileFormat, InputConfig
from foretaste.data.engine import Engine
from foretaste.data.reading import naming
from foretaste.data.scans import Scan, identifier
from foretaste.data.sources import check_format_acts, open_scans
from foretaste.errors import InputError, SettingError

# Columns of these names are left out, as are repeats of a name in another case.
_RESERVED = frozenset({"", "id", "item_id", "item_index", "described_id"})


def open_item_scan(items: Any, format: FileFormat) -> Scan:
    """The one file or frame that describes items; InputError where there are several."""
    scans = open_scans(items, format)
    check_format_acts(format, scans)
    if len(scans) > 1:
        raise InputError(f"items must be one file, and {items} names {len(scans)}")
    return scans[0]


def read_item_columns(engine: Engine, scan: Scan | None, config: InputConfig) -> list[str]:
    """Make table ``described`` of the item columns; how a query names each of them.

    Every value is kept as text. The column that looks like a title is called ``title``. Raises
    InputError where the item id is not to be found, or one id comes twice.
    """
    if scan is None:
        return []
    key = _key(scan, config)
    names = _names(scan, key, _title(scan, key, config))
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


def describe_titles(engine: Engine, scan: Scan | None, config: InputConfig) -> dict[str, str]:
    """What is said of the titles: their column, and how many items have one; empty where no file
    describes items."""
    if scan is None:
        return {}
    # Where the file lies tells nothing, and differs from machine to machine.
    key, file = _key(scan, config), Path(scan.name).name
    title = _title(scan, key, config)
    if title is None:
        return {"titles": no_title(_beside(scan, key), file)}
    num_titled, num_items = engine.row(
        f"SELECT count(nullif(described.title, '')), count(*) FROM items{steps.DESCRIBED}"
    )
    return {
        "titles": f"{shown(title)} of {file}, for {num_titled:,} of {counted(num_items, 'item')}"
    }


def _key(scan: Scan, config: InputConfig) -> str:
    """The column of the item ids."""
    return find_item_column(list(scan.columns), config.item_column, scan.name, scan.header)


def _title(scan: Scan, key: str, config: InputConfig) -> str | None:
    if config.title_column == key:
        raise SettingError(f"title_column is {shown(key)}, which is the column of the item ids")
    return find_title(_beside(scan, key), config.title_column, scan.name)


def _beside(scan: Scan, key: str) -> list[str]:
    return [name for name in scan.columns if name != key]


def _names(scan: Scan, key: str, title: str | None) -> dict[str, str]:
    """Every column but the key, and what it is called in items.parquet."""
    taken = _RESERVED | ({"title"} if title is not None else set())
    names: dict[str, str] = {}
    for name in _beside(scan, key):
        if name == title:
            names[name] = identifier("title")
        elif name.lower() not in taken:
            taken |= {name.lower()}
            names[name] = identifier(name)
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

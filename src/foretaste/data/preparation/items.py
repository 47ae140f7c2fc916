"""Titles and other columns of items, from a file or frame of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretaste._util.formatting import counted, shown
from foretaste.data.config import InputConfig
from foretaste.data.preparation import steps
from foretaste.data.preparation.columns import (
    find_spelling,
    flag,
    header_hint,
    listed,
    named_column,
    none_looks_like,
)
from foretaste.data.preparation.reading import like_it, naming
from foretaste.data.sources.source import Source, identifier
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

# Columns of these names are left out, as are repeats of a name in another case.
_RESERVED = frozenset({"", "id", "item_id", "item_index", "described_id"})


class ItemDescriptions:
    """A source that describes items: the columns of their ids, of their titles, and others.

    Raises InputError where the item id is not to be found, SettingError where the title is asked
    for in its column.
    """

    def __init__(self, source: Source, config: InputConfig) -> None:
        self._source = source
        self._key = _find_key(source, config.item_column)
        if config.title_column == self._key:
            raise SettingError(
                f"title_column is {shown(self._key)}, which is the column of the item ids"
            )
        self._others = [name for name in source.columns if name != self._key]
        self._title = named_column(
            self._others, config, "title_column", source.name
        ) or find_spelling(
            self._others, "title", source.name, f"say which with {flag('title_column')}"
        )

    def read(self, engine: Engine) -> list[str]:
        """Make table ``described`` of the columns, as text; their names in a query.

        The column of titles is called ``title``. Raises InputError where one id comes twice.
        """
        taken = _RESERVED if self._title is None else _RESERVED | {"title"}
        names: dict[str, str] = {}
        for name in self._others:
            if name == self._title:
                names[name] = identifier("title")
            elif name.lower() not in taken:
                taken |= {name.lower()}
                names[name] = identifier(name)
        columns = self._source.columns
        selected = ", ".join(
            f"CAST({columns[name].sql} AS VARCHAR) AS {sql}"
            for name, sql in {self._key: "described_id", **names}.items()
        )
        with naming([self._source]):
            engine.register(self._source)
            engine.make("described", f"SELECT {selected} FROM {self._source.relation}")
        count, example = engine.row(
            "SELECT count(*), min(described_id) FROM (SELECT described_id FROM described "
            "WHERE described_id IS NOT NULL GROUP BY described_id HAVING count(*) > 1)"
        )
        if count:
            raise InputError(
                f"{self._source.locate(self._key, example)}: item {shown(example)} is there more "
                f"than once (column {shown(self._key)}, {like_it(count, 'item')}); keep one row of "
                "each"
            )
        return [f"described.{sql}" for sql in names.values()]

    def check_used(self, engine: Engine) -> None:
        """Raise InputError where none of the items that were kept is described."""
        num_found, kept = engine.row(
            f"SELECT count(described_id), min(CAST(item_id AS STRING)) FROM items{steps.DESCRIBED}"
        )
        if num_found == 0:
            (found,) = engine.row("SELECT min(described_id) FROM described")
            raise InputError(
                f"{self._source.name}: describes none of the items that were kept: its ids are "
                f"such as {shown(found)}, theirs such as {shown(kept)}; give the file of these "
                "items, or leave it out"
            )

    def describe_titles(self, engine: Engine) -> str:
        """A note on the column of the titles, and how many items have one."""
        # The folder of the file says nothing, and differs from machine to machine.
        file = Path(self._source.name).name
        if self._title is None:
            if not self._others:
                return f"none, as {file} has no column but the ids"
            return (
                f"none, as no column of {file} looks like a title: {listed(self._others)} "
                "(--title-column names one)"
            )
        num_titled, num_items = engine.row(
            f"SELECT count(nullif(described.title, '')), count(*) FROM items{steps.DESCRIBED}"
        )
        items = counted(num_items, "item")
        return f"{shown(self._title)} of {file}, for {num_titled:,} of {items}"


def _find_key(source: Source, name: str | None) -> str:
    """The column of the item ids, which may be spelled as in the interactions."""
    columns = list(source.columns)
    if name is not None and name in columns:
        return name
    # The options of columns are about interactions, so there is none to say which of two is meant.
    found = find_spelling(columns, "item_id", source.name, "rename one of them")
    if found is not None:
        return found
    if "id" in columns:
        return "id"
    raise InputError(
        f"{none_looks_like(columns, 'item_id', source.name)}. Rename the column of the ids to "
        f"item_id.{header_hint(source, 'item_id,title')}"
    )

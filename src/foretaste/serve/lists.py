"""Lists as responses have them: JSON of parts that stay the same, and a bounded cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic_core import to_json

from foretaste.data.ids import IdTable
from foretaste.recommend.inputs import Id
from foretaste.recommend.mixed import Listed

CacheKey = tuple[Id, int]
"""A user's id and the number of items."""

_BYTES_OF_ENTRY = 400
"""Of a list in the cache, beside its JSON: objects, key and place."""


class WrittenList(NamedTuple):
    """The list of one user as JSON, and what is counted of it."""

    content: bytes
    is_known: bool
    is_popularity: bool
    is_cached: bool = False
    """True where the cache had it."""


class ListWriter:
    """Writes lists as JSON; an item that was listed once has its id and title written already."""

    def __init__(self, items: IdTable) -> None:
        self._items = items
        self._parts: list[bytes | None] = [None] * len(items)

    def write(self, listed: Listed) -> WrittenList:
        """A `UserAnswer`."""
        parts, index = self._parts, listed.item_index
        if any(parts[row] is None for row in index):
            self._prepare([row for row in index if parts[row] is None])
        scores = to_json(listed.scores)[1:-1].split(b",")
        items = b",".join([parts[row] % score for row, score in zip(index, scores, strict=False)])  # type: ignore[operator]
        content = b'{"user_id":%b,"known":%b,"items":[%b],"reason":%b}' % (
            to_json(listed.user_id),
            b"true" if listed.is_known else b"false",
            items,
            to_json(listed.reason),
        )
        return WrittenList(content, listed.is_known, listed.is_popularity)

    def _prepare(self, rows: Sequence[int]) -> None:
        """Write items with room for their score."""
        index = np.array(rows)
        titles = self._items.titles(index)
        for place, (row, item_id) in enumerate(zip(rows, self._items.ids(index), strict=True)):
            title = b"" if titles is None else b',"title":' + to_json(titles[place])
            before, after = (text.replace(b"%", b"%%") for text in (to_json(item_id), title))
            self._parts[row] = b'{"item_id":' + before + b',"score":%b' + after + b"}"


class ListCache:
    """Lists of users whom a run knows, those asked for last, within a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lists: OrderedDict[CacheKey, WrittenList] = OrderedDict()

    def get(self, key: CacheKey | None) -> WrittenList | None:
        """The list, if it is there; none has no key."""
        found = self._lists.get(key) if key else None
        if key and found:
            self._lists.move_to_end(key)
        return found

    def put(self, key: CacheKey, written: WrittenList) -> None:
        """Keep a list; those not asked for the longest make room."""
        if key in self._lists:
            return
        self._lists[key] = written._replace(is_cached=True)
        self._num_bytes += len(written.content) + _BYTES_OF_ENTRY
        while self._num_bytes > self._max_bytes:
            _, dropped = self._lists.popitem(last=False)
            self._num_bytes -= len(dropped.content) + _BYTES_OF_ENTRY

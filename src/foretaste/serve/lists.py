"""Lists as responses have them: JSON of parts that stay the same, and a bounded cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pydantic_core import to_json

from foretaste.data.ids import Id, IdTable
from foretaste.recommend.top_k import TopItems
from foretaste.serve.schemas import RecommendBody

CacheKey = tuple[Id, int, bytes]
"""A user's id, the number of items, and rules and limits as JSON."""

_BYTES_OF_ENTRY = 400
"""Of a list in the cache, beside its JSON: objects, key and place."""


class WrittenList(NamedTuple):
    """The list of one user as JSON, and what is counted of it."""

    content: bytes
    is_known: bool
    is_popularity: bool
    is_cached: bool = False
    """True where the cache had it."""


def cache_key(body: RecommendBody, user_id: Id | None, history: Sequence[Id]) -> CacheKey | None:
    """The key of a list that depends on the run and its rules alone; None where it does on more."""
    has_options = body.exclude or body.candidates is not None or body.include_seen
    has_options = has_options or body.reasons
    if user_id is None or history or has_options:
        return None
    by_rules = body.rules or body.max_per
    rules = to_json([sorted({*body.rules}), sorted(body.max_per.items())]) if by_rules else b""
    return user_id, body.k, rules


class _ItemParts(dict[int, bytes]):
    """Items as JSON with room for a score, by their rows; made when they are first listed."""

    def __init__(self, items: IdTable) -> None:
        super().__init__()
        self._items = items

    def __missing__(self, row: int) -> bytes:
        index = np.array([row])
        titles = self._items.titles(index)
        title = b"" if titles is None else b',"title":' + to_json(titles[0])
        item_id = to_json(self._items.ids(index)[0])
        before, after = (text.replace(b"%", b"%%") for text in (item_id, title))
        self[row] = part = b'{"item_id":' + before + b',"score":%b' + after + b"}"
        return part


class ListWriter:
    """Writes lists as JSON."""

    def __init__(self, items: IdTable) -> None:
        self._parts = _ItemParts(items)

    def write(
        self, top: TopItems, user_ids: Sequence[Id | None], is_known: Sequence[bool]
    ) -> list[WrittenList]:
        """A `UserAnswer` for each list, which is for a user of ``user_ids``."""
        is_popularity = (top.num_known == 0).tolist()
        because = top.because or [None] * len(user_ids)
        written = []
        for row, items in enumerate(self._scored(top)):
            nearest = because[row]
            if nearest is not None:
                items = [
                    b'%b,"because":[%b]}' % (item[:-1], b",".join(found))
                    for item, found in zip(items, self._scored(nearest), strict=True)
                ]
            content = b'{"user_id":%b,"known":%b,"items":[%b],"reason":%b}' % (
                to_json(user_ids[row]),
                b"true" if is_known[row] else b"false",
                b",".join(items),
                to_json("; ".join(top.remarks[row]) or None),
            )
            written.append(WrittenList(content, is_known[row], is_popularity[row]))
        return written

    def _scored(self, top: TopItems) -> Iterator[list[bytes]]:
        """Each item of each list with its score."""
        parts = self._parts
        lists = zip(top.item_index.tolist(), top.score.tolist(), top.length.tolist(), strict=True)
        for item_index, scores, length in lists:
            texts = to_json(scores[:length])[1:-1].split(b",")
            yield [parts[row] % text for row, text in zip(item_index[:length], texts, strict=False)]


class ListCache:
    """Lists of users whom a run knows, those asked for last, within a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._num_bytes = 0
        self._lists: OrderedDict[CacheKey, WrittenList] = OrderedDict()

    def get(self, key: CacheKey | None) -> WrittenList | None:
        """The list, if it is there; none has no key."""
        found = self._lists.get(key) if key else None
        if key and found:
            self._lists.move_to_end(key)
        return found

    def put(self, key: CacheKey | None, written: WrittenList) -> WrittenList:
        """Keep a list that has a key, and return it; those not asked for the longest make room."""
        # Of users whom the run does not know there are any number.
        if key is None or key in self._lists or not written.is_known:
            return written
        self._lists[key] = written._replace(is_cached=True)
        self._num_bytes += _size(key, written)
        while self._num_bytes > self.max_bytes:
            self._num_bytes -= _size(*self._lists.popitem(last=False))
        return written


def _size(key: CacheKey, written: WrittenList) -> int:
    """Bytes of an entry of the cache."""
    return len(written.content) + len(key[2]) + _BYTES_OF_ENTRY

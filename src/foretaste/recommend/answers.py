"""What a recommender answers, and the same as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from foretaste.recommend.ids import Id

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable
    from foretaste.recommend.lists import Lists

Kind = Literal["user", "history", "item"]

_HEADINGS = {"user": "user {}", "history": "new user", "item": "similar to item {}"}
COLUMNS = {"user": "user_id", "history": "history", "item": "similar_to"}


class ScoredItem(NamedTuple):
    """One recommended item; a tuple, for thousands of them are made at a time."""

    item_id: Id
    score: float
    """Only its order within one answer means anything."""
    title: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One list of items, best first; equal scores in the order of the catalogue."""

    id: Id | None
    """The user or item that was asked about; None for a history."""
    items: list[ScoredItem]
    reason: str | None = None
    """Why the list is short or in popularity order, and which given ids were ignored."""
    kind: Kind = "user"
    """What was asked about: a ``user`` by id, a ``history``, or an ``item`` by id."""

    @property
    def item_ids(self) -> list[Id]:
        """The items' ids, best first."""
        return [item.item_id for item in self.items]

    @property
    def column(self) -> str:
        """What the column is called that says who or what was asked about."""
        return COLUMNS[self.kind]

    def __str__(self) -> str:
        lines = [_HEADINGS[self.kind].format(self.id)]
        width = max((len(str(item.item_id)) for item in self.items), default=0)
        for rank, item in enumerate(self.items, start=1):
            title = "" if item.title is None else f"  {item.title}"
            lines.append(f"{rank:4}.  {item.item_id!s:>{width}}  {item.score:9.4f}{title}")
        if self.reason:
            lines.append(f"      ({self.reason})")
        return "\n".join(lines)


def make_answers(
    kind: Kind,
    asked: Sequence[Id | None],
    lists: Lists,
    items: IdTable,
    reasons: Sequence[Sequence[str]],
) -> list[Answer]:
    """One answer per row of ``lists``, in the ids and titles of ``items``."""
    filled = lists.filled()
    index = lists.item_index[filled]
    titles = items.titles(index) or [None] * len(index)
    scores = lists.score[filled].tolist()
    listed = list(map(ScoredItem._make, zip(items.ids(index), scores, titles, strict=True)))
    ends = np.cumsum(lists.length)
    return [
        Answer(
            id=about,
            items=listed[end - length : end],
            reason="; ".join(why) or None,
            kind=kind,
        )
        for about, end, length, why in zip(asked, ends, lists.length, reasons, strict=True)
    ]


def to_table(answers: Sequence[Answer]) -> pa.Table:
    """One row per recommended item, in order; all answers must be of one kind.

    Columns: ``user_id`` (for a history: ``history``, its position from 0; for similar items:
    ``similar_to``), ``rank`` from 1, ``item_id``, ``score``, and ``title`` where any is known.
    """
    asked, *others = {answer.column for answer in answers} or {COLUMNS["user"]}
    assert not others, "answers of one kind make one table"
    rows: list[tuple[Any, int, Any]] = [
        (number if answer.id is None else answer.id, rank, item)
        for number, answer in enumerate(answers)
        for rank, item in enumerate(answer.items, start=1)
    ]
    columns: dict[str, Any] = {
        asked: pa.array([about for about, _, _ in rows]),
        "rank": pa.array([rank for _, rank, _ in rows], pa.int32()),
        "item_id": pa.array([item.item_id for _, _, item in rows]),
        "score": pa.array([item.score for _, _, item in rows], pa.float32()),
    }
    titles = [item.title for _, _, item in rows]
    if any(title is not None for title in titles):
        columns["title"] = pa.array(titles, pa.string())
    return pa.table(columns)

"""Answers of a recommender, one by one and as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from foretaste._util.formatting import html_table
from foretaste._util.terminal import printable
from foretaste.data.ids import Id, id_array

if TYPE_CHECKING:
    import pandas
    import polars

    from foretaste.data.ids import IdTable
    from foretaste.recommend.top_k import TopItems

Kind = Literal["user", "history", "item"]

_HEADINGS = {"user": "user {}", "history": "new user", "item": "similar to item {}"}
COLUMNS = {"user": "user_id", "history": "history", "item": "similar_to"}


class ConvertibleAnswers:
    """Answers that convert to Arrow, pandas and Polars, with the columns of `to_table`."""

    def _answers(self) -> Sequence[Answer]:
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table."""
        return to_table(self._answers())

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return a Polars DataFrame."""
        import polars

        return polars.DataFrame(self.to_arrow())


@dataclass(frozen=True)
class ScoredItem:
    """One recommended item."""

    item_id: Id
    score: float
    """The score; comparable within one answer only."""
    title: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answer(ConvertibleAnswers):
    """One list of items, best first; equal scores are in the order of the catalogue."""

    # An answer has columns, and not an object for each item, because thousands of answers are made
    # at once.
    id: Id | None
    """The user or item of the question; None for a history."""
    item_ids: list[Id]
    """The items' ids, best first."""
    scores: list[float]
    """The items' scores; comparable within one answer only."""
    titles: list[str | None] | None = None
    """The items' titles; None if the run has no titles."""
    reason: str | None = None
    """Reason for a short list or popularity order, with the given ids that were ignored."""
    kind: Kind = "user"
    """Subject of the list: a ``user`` by id, a ``history``, or an ``item`` by id."""
    because: list[list[ScoredItem]] | None = None
    """For each item the nearest items of the history; None if not asked for or not known."""

    @property
    def items(self) -> list[ScoredItem]:
        """The list as one object per item."""
        titles = self.titles or [None] * len(self.item_ids)
        return list(map(ScoredItem, self.item_ids, self.scores, titles))

    def _answers(self) -> Sequence[Answer]:
        return [self]

    def _repr_html_(self) -> str:
        titled = self.titles is not None
        rows = [
            [rank, item.item_id, f"{item.score:z.4f}", *([item.title or ""] if titled else [])]
            for rank, item in enumerate(self.items, start=1)
        ]
        headings = ["rank", "item_id", "score", *(["title"] if titled else [])]
        return html_table(_HEADINGS[self.kind].format(self.id), headings, rows, self.reason)

    @property
    def column(self) -> str:
        """Name of the column with the user, history or item of the question."""
        return COLUMNS[self.kind]

    def __str__(self) -> str:
        lines = [_HEADINGS[self.kind].format(printable(str(self.id)))]
        item_ids = [printable(str(item_id)) for item_id in self.item_ids]
        width = max(map(len, item_ids), default=0)
        because = self.because or [[]] * len(item_ids)
        for rank, (item_id, item, nearest) in enumerate(
            zip(item_ids, self.items, because, strict=True), start=1
        ):
            title = "" if item.title is None else f"  {_on_one_line(item.title)}"
            # With z, a number that is rounded to -0.0000 is written as 0.0000.
            lines.append(f"{rank:4}.  {item_id:>{width}}  {item.score:z9.4f}{title}")
            if nearest:
                names = [_on_one_line(str(one.title or one.item_id)) for one in nearest]
                lines.append(f"       because of {'; '.join(names)}")
        if self.reason:
            lines.append(f"      ({self.reason})")
        return "\n".join(lines)


def _on_one_line(text: str) -> str:
    return printable(" ".join(text.split()))


class Answers(list[Answer], ConvertibleAnswers):
    """A list of answers of one kind; one Arrow table, or one table per answer in a notebook."""

    def _answers(self) -> Sequence[Answer]:
        return self

    def _repr_html_(self) -> str:
        return "".join(answer._repr_html_() for answer in self)


def make_answers(
    kind: Kind, ids: Sequence[Id | None] | None, top: TopItems, items: IdTable
) -> Answers:
    """Return an answer per row of ``top`` and ``ids``, with ids and titles of ``items``."""
    filled = top.filled()
    index = top.item_index[filled]
    item_ids, scores, titles = items.ids(index), top.score[filled].tolist(), items.titles(index)
    ends = np.cumsum(top.length).tolist()
    about = [None] * len(ends) if ids is None else ids
    because = top.because or [None] * len(ends)
    return Answers(
        Answer(
            id=id,
            item_ids=item_ids[start:end],
            scores=scores[start:end],
            titles=titles and titles[start:end],
            reason="; ".join(reason) or None,
            kind=kind,
            because=None if nearest is None else _scored_items(nearest, items),
        )
        for id, (start, end), reason, nearest in zip(
            about, pairwise([0, *ends]), top.remarks, because, strict=True
        )
    )


def _scored_items(top: TopItems, items: IdTable) -> list[list[ScoredItem]]:
    return [answer.items for answer in make_answers("item", None, top, items)]


def to_table(answers: Sequence[Answer], first: int = 0) -> pa.Table:
    """Return a table with one row per recommended item, in order; all answers must be of one kind.

    Columns: ``user_id``, ``rank`` from 1, ``item_id``, ``score`` and, if the run has titles,
    ``title``. In place of ``user_id`` histories have ``history``, their position counted from
    ``first``, and similar items have ``similar_to``. ``user_id`` is text if any id is text.
    """
    column, *others = {answer.column for answer in answers} or {COLUMNS["user"]}
    assert not others, "answers of one kind make one table"
    lengths = [len(answer.item_ids) for answer in answers]
    about = [number if one.id is None else one.id for number, one in enumerate(answers, first)]
    ranks = [np.arange(1, length + 1, dtype=np.int32) for length in lengths]
    columns: dict[str, pa.Array] = {
        column: id_array(about).take(pa.array(np.repeat(np.arange(len(answers)), lengths))),
        "rank": pa.array(np.concatenate([*ranks, np.zeros(0, np.int32)])),
        "item_id": pa.array([*chain.from_iterable(answer.item_ids for answer in answers)]),
        "score": pa.array([*chain.from_iterable(a.scores for a in answers)], pa.float32()),
    }
    if any(answer.titles is not None for answer in answers):
        titles = (answer.titles or [None] * len(answer.item_ids) for answer in answers)
        columns["title"] = pa.array([*chain.from_iterable(titles)], pa.string())
    return pa.table(columns)

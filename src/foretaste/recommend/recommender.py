"""A model answering: known users, new users by their history, similar items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from foretaste._util.settings import Count, checked
from foretaste.data.histories import Histories
from foretaste.data.ids import IdTable
from foretaste.errors import UnknownIdError
from foretaste.models.base import RecommenderModel
from foretaste.recommend.answers import COLUMNS, Answer, Kind, make_answers
from foretaste.recommend.export import Export, write_lists
from foretaste.recommend.given import NOTHING_KNOWN, UNKNOWN_USER, Given, known_histories
from foretaste.recommend.ids import (
    AskedUsers,
    Id,
    Unknown,
    as_ids,
    examples,
    lookup_all,
    named,
)
from foretaste.recommend.lists import ListMaker, Lists, Made
from foretaste.recommend.output import Output
from foretaste.recommend.shelf import make_shelf
from foretaste.recommend.similar import SimilarListMaker
from foretaste.runs.loading import load_model
from foretaste.runs.run import Run


class Recommender:
    """Recommends from one model, in the customer's own ids.

    Every answer holds exactly k items or says why not. Items in the history are left out unless
    ``include_seen``; ``candidates`` restricts lists to what is, say, in stock, and ``exclude``
    takes items away. In these two, ids that training never saw are ignored, and named in the
    reason.
    """

    def __init__(
        self,
        model: RecommenderModel,
        users: IdTable,
        items: IdTable,
        histories: Histories | Callable[[], Histories],
        *,
        run: Run | None = None,
    ) -> None:
        """Recommend with ``model``, whose rows are the first of ``users`` and of ``items``.

        ``histories`` has one row per entry of ``users``, or reads them once users are asked for.
        ``run`` is where all of it comes from, if it comes from one.
        """
        self.model = model
        self.users = users
        self.items = items
        self.run = run
        self._all_histories = histories

    def __repr__(self) -> str:
        if self.run is None:
            return f"Recommender({type(self.model).__name__})"
        return f"Recommender({str(self.run.path)!r}, {self.run.config.model})"

    @classmethod
    def open(cls, run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
        """Answer from a run, or the run at a path, on ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
        opened = run if isinstance(run, Run) else Run.open(run)
        model = load_model(opened, device)
        return cls(model, opened.users, opened.items, lambda: opened.histories, run=opened)

    def recommend(
        self,
        user_ids: Iterable[Id],
        k: int = 10,
        *,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
        unknown: Unknown = "error",
    ) -> list[Answer]:
        """One answer per user, in the order asked; repeats are allowed.

        Users held out of training are answered from their histories. Users that the run does not
        know raise UnknownIdError, whose ``ids`` they are; with ``unknown="skip"`` they have no
        answer, with ``unknown="popular"`` one in popularity order that says so.
        """
        asked = AskedUsers.of(self.users, user_ids, unknown)
        maker = self._list_maker(k, exclude, candidates, include_seen)
        made = self._of_users(asked.user_index, maker)
        return self._answers("user", asked.ids(), made, maker)

    def recommend_for(
        self,
        histories: Mapping[Id, Iterable[Id]] | Sequence[Iterable[Id]],
        k: int = 10,
        *,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
    ) -> list[Answer]:
        """One answer per history: the item ids of a user whom the run need not know.

        A mapping names the users, ``{"anna": [1, 5]}``, and the answers have their names. Items
        that training never saw are ignored, and named in the reason. A history of which nothing is
        left is answered in popularity order.
        """
        given = Given.of(histories)
        maker = self._list_maker(k, exclude, candidates, include_seen)
        made = self._of_histories(given.histories, maker)
        return self._answers(given.kind, given.names, made, maker)

    def similar_items(self, item_ids: Iterable[Id], k: int = 10) -> list[Answer]:
        """The k items of the catalogue most similar to each given item, itself left out.

        Raises UnknownIdError for an item that training never saw, and UnsupportedError where the
        model learns nothing of items that could be compared.
        """
        maker = SimilarListMaker(self.model, k=checked("k", k, Count))
        index = self._catalogue_index(as_ids("item_ids", item_ids))
        lists, items = maker.make(index).lists, self.items
        return make_answers("item", items.ids(index), lists, items, maker.reasons(lists))

    def similar_all(
        self,
        output: Path | str,
        k: int = 10,
        *,
        item_ids: Iterable[Id] | None = None,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write what is most similar to every item of the catalogue, or to these, to a file.

        One row per similar item, as `recommend_all` writes them; the first column is similar_to.
        """
        file = Output(checked("output", output, Path), overwrite, spreadsheet_safe)
        maker = SimilarListMaker(self.model, k=checked("k", k, Count))
        index = np.arange(self.model.num_items)
        if item_ids is not None:
            index = self._catalogue_index(as_ids("item_ids", item_ids))
        asked = pa.table({COLUMNS["item"]: self.items.table.column("id").take(index)})
        return write_lists(
            file, asked, self.items, maker, lambda rows: maker.make(index[rows]), progress
        )

    def recommend_all(
        self,
        output: Path | str,
        k: int = 10,
        *,
        user_ids: Iterable[Id] | None = None,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
        unknown: Unknown = "error",
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists of every user, or of these, to a ``.parquet``, ``.csv`` or ``.jsonl``.

        One row per recommended item: user_id, rank from 1, item_id, score and, where the run has
        them, title. Lists are written as they are made, and ``output`` appears once it is whole.
        ``progress`` is told the number of users done and in all. Raises SettingError where
        ``output`` exists, unless ``overwrite``. ``spreadsheet_safe`` puts an apostrophe before text
        in a CSV that a spreadsheet would compute, ids included. ``unknown`` is as in `recommend`;
        the notes of what was written count such users, and the column user_id is text where one of
        them is no integer.
        """
        file = Output(checked("output", output, Path), overwrite, spreadsheet_safe)
        maker = self._list_maker(k, exclude, candidates, include_seen)
        if user_ids is None:
            asked = AskedUsers(users=self.users, user_index=np.arange(len(self.users)))
        else:
            asked = AskedUsers.of(self.users, user_ids, unknown)

        def make(rows: NDArray[np.int64]) -> Made:
            return self._of_users(asked.user_index[rows], maker)

        column = pa.table({"user_id": asked.column()})
        return write_lists(file, column, self.items, maker, make, progress, asked.notes)

    def recommend_all_for(
        self,
        output: Path | str,
        histories: Mapping[Id, Iterable[Id]] | Sequence[Iterable[Id]],
        k: int = 10,
        *,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists that `recommend_for` makes of histories, as `recommend_all` does.

        The first column is user_id where a mapping names the users, else history: 0, 1, 2, ...
        """
        file = Output(checked("output", output, Path), overwrite, spreadsheet_safe)
        maker = self._list_maker(k, exclude, candidates, include_seen)
        given = Given.of(histories)

        def make(rows: NDArray[np.int64]) -> Made:
            return self._of_histories([given.histories[row] for row in rows], maker)

        export = write_lists(file, given.asked(), self.items, maker, make, progress)
        if export.num_users == export.num_popularity_lists > 0:
            hint = f"nothing in the histories was seen in training; {examples(self.items)}"
            return replace(export, notes=(*export.notes, hint))
        return export

    @cached_property
    def _histories(self) -> Histories:
        """The history of each user of the run, items of the catalogue only; an empty one follows,
        for users the run does not know."""
        histories = self._all_histories
        if callable(histories):
            histories = histories()
        return histories.within(self.model.num_items).padded(len(self.users) + 1)

    def _list_maker(
        self,
        k: int,
        exclude: Iterable[Id],
        candidates: Iterable[Id] | None,
        include_seen: bool,
    ) -> ListMaker:
        shelf = make_shelf(self.items, self.model.num_items, candidates=candidates, exclude=exclude)
        k, include_seen = checked("k", k, Count), checked("include_seen", include_seen, bool)
        return ListMaker(self.model, shelf, k=k, include_seen=include_seen)

    def _of_users(self, user_index: NDArray[np.int64], maker: ListMaker) -> Made:
        """Lists for users by row: from trained rows, folded in where training had none.

        The row past the last stands for a user the run does not know.
        """
        lists = Lists.empty(len(user_index), maker.num_places)
        is_trained = user_index < self.model.num_users
        trained, new = np.flatnonzero(is_trained), np.flatnonzero(~is_trained)
        histories = self._histories
        lists.put(trained, maker.make(histories.rows(user_index[trained]), user_index[trained]))
        lists.put(new, maker.make(histories.rows(user_index[new]), None))
        num_known = histories.lengths()[user_index]
        own = [[] if known else [NOTHING_KNOWN] for known in num_known]
        for row in np.flatnonzero(user_index == len(self.users)):
            own[row] = [UNKNOWN_USER]
        return Made(lists, num_known, own)

    def _of_histories(self, given: Sequence[Sequence[Id]], maker: ListMaker) -> Made:
        """Lists for new users."""
        known, own = known_histories(self.items, self.model.num_items, given)
        return Made(maker.make(known, None), known.lengths(), own)

    def _answers(
        self, kind: Kind, asked: Sequence[Id | None], made: Made, maker: ListMaker
    ) -> list[Answer]:
        reasons = maker.reasons(made.lists, made.own)
        return make_answers(kind, asked, made.lists, self.items, reasons)

    def _catalogue_index(self, ids: Sequence[Id]) -> NDArray[np.int64]:
        index = lookup_all(self.items, ids)
        unseen = list(compress(ids, index >= self.model.num_items))
        if unseen:
            raise UnknownIdError(
                f"{len(unseen)} of {len(ids)} items were never seen in training, so nothing is "
                f"known of what they are similar to: {named(unseen)}",
                unseen,
            )
        return index


def load(run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
    """Open a run to recommend from: ``load("runs/mine").recommend([42], k=10)``."""
    return Recommender.open(run, device)

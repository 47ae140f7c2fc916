"""A run answering: known users, new users by their history, similar items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import compress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste.data.histories import Histories
from foretaste.errors import UnknownIdError
from foretaste.evaluation.places import ABSENT
from foretaste.evaluation.scoring import exact_scores
from foretaste.models.base import RecommenderModel
from foretaste.recommend.answers import Answer, make_answers
from foretaste.recommend.export import (
    Export,
    check_output,
    lists_schema,
    lists_table,
    table_writer,
)
from foretaste.recommend.given import NOTHING_KNOWN, known_histories
from foretaste.recommend.ids import Id, as_ids, check_k, lookup_all, named
from foretaste.recommend.lists import ListMaker, Lists, batches
from foretaste.recommend.shelf import make_shelf, reason_for_fewer
from foretaste.runs.loading import load_model
from foretaste.runs.run import Run


class Recommender:
    """Recommends from one run, in the customer's own ids.

    Every answer holds exactly k items or says why not. Items in the history are left out unless
    ``include_seen``; ``candidates`` restricts lists to what is, say, in stock, and ``exclude``
    takes items away. In these two, ids that training never saw are ignored, and named in the
    reason.
    """

    def __init__(self, run: Run, model: RecommenderModel) -> None:
        self.run = run
        self.model = model

    @classmethod
    def open(cls, run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
        """Answer from a run, or the run at a path, on ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
        if not isinstance(run, Run):
            run = Run.open(run)
        return cls(run, load_model(run, device))

    def recommend(
        self,
        user_ids: Iterable[Id],
        k: int = 10,
        *,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
    ) -> list[Answer]:
        """One answer per user that the run knows, in the order asked; repeats are allowed.

        Users held out of training are answered from their histories. Raises UnknownIdError naming
        the users that the run does not know.
        """
        user_index = lookup_all(self.run.users, as_ids("user_ids", user_ids))
        maker = self._list_maker(k, exclude, candidates, include_seen)
        lists = self._user_lists(user_index, maker)
        own = [
            [] if num_known else [NOTHING_KNOWN]
            for num_known in self._histories.lengths()[user_index]
        ]
        asked = self.run.users.ids(user_index)
        return make_answers("user", asked, lists, self.run.items, maker.reasons(lists, own))

    def recommend_for(
        self,
        histories: Sequence[Iterable[Id]],
        k: int = 10,
        *,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
    ) -> list[Answer]:
        """One answer per history: the item ids of a user whom the run need not know.

        Items that training never saw are ignored, and named in the reason. A history of which
        nothing is left is answered in popularity order.
        """
        given = [as_ids("each history", ids) for ids in histories]
        known, own = known_histories(self.run.items, self.run.num_items, given)
        maker = self._list_maker(k, exclude, candidates, include_seen)
        lists = maker.make(known, None)
        asked = [None] * len(given)
        return make_answers("history", asked, lists, self.run.items, maker.reasons(lists, own))

    def similar_items(self, item_ids: Iterable[Id], k: int = 10) -> list[Answer]:
        """The k items of the catalogue most similar to each given item, itself left out.

        Raises UnknownIdError for an item that training never saw, and UnsupportedError where the
        model learns nothing of items that could be compared.
        """
        k = check_k(k)
        index = self._catalogue_index(as_ids("item_ids", item_ids))
        num_others = self.run.num_items - 1
        num_places = min(k, num_others)
        lists = Lists.empty(len(index), num_places)
        for rows in batches(len(index), self.run.num_items, self.model.device):
            item_index_B = torch.tensor(index[rows], device=self.model.device)
            with exact_scores(self.model):
                score_BI = self.model.similarity(item_index_B)
            score_BI = score_BI.scatter(1, item_index_B[:, None], ABSENT)
            lists.put(rows, Lists.best(score_BI, num_places))
        fewer = reason_for_fewer(num_places, k, num_others, "other item{s} in the catalogue")
        reasons = [[fewer] if fewer else []] * len(index)
        return make_answers("item", self.run.items.ids(index), lists, self.run.items, reasons)

    def recommend_all(
        self,
        output: Path | str,
        k: int = 10,
        *,
        exclude: Iterable[Id] = (),
        candidates: Iterable[Id] | None = None,
        include_seen: bool = False,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists of every user to ``output``: ``.parquet``, ``.csv`` or ``.jsonl``.

        One row per recommended item: user_id, rank from 1, item_id, score and, where the run has
        them, title. Lists are written as they are made, and ``output`` appears once it is whole.
        ``progress`` is told the number of users done and in all. Raises SettingError where
        ``output`` exists, unless ``overwrite``.
        """
        path = check_output(Path(output), overwrite)
        maker = self._list_maker(k, exclude, candidates, include_seen)
        num_users, num_rows, num_short = len(self.run.users), 0, 0
        with table_writer(path, lists_schema(self.run.users, self.run.items)) as write:
            for user_index in batches(num_users, maker.num_columns, self.model.device):
                lists = self._user_lists(user_index, maker)
                write(lists_table(self.run.users, self.run.items, user_index, lists))
                num_rows += int(lists.length.sum())
                num_short += int(np.count_nonzero(lists.length < maker.k))
                if progress is not None:
                    progress(int(user_index[-1]) + 1, num_users)
        return Export(
            path=path,
            num_users=num_users,
            num_rows=num_rows,
            num_short_lists=num_short,
            num_popularity_lists=int(np.count_nonzero(self._histories.lengths() == 0)),
            notes=maker.shelf.notes,
        )

    @cached_property
    def _histories(self) -> Histories:
        """The history of each user of the run, items of the catalogue only."""
        return self.run.histories.within(self.run.num_items)

    def _list_maker(
        self,
        k: int,
        exclude: Iterable[Id],
        candidates: Iterable[Id] | None,
        include_seen: bool,
    ) -> ListMaker:
        shelf = make_shelf(
            self.run.items, self.run.num_items, candidates=candidates, exclude=exclude
        )
        return ListMaker(self.model, shelf, k=check_k(k), include_seen=include_seen)

    def _user_lists(self, user_index: NDArray[np.int64], maker: ListMaker) -> Lists:
        """Lists for users of the run: from trained rows, folded in where training had none."""
        lists = Lists.empty(len(user_index), maker.num_places)
        is_trained = user_index < self.run.num_train_users
        trained, new = np.flatnonzero(is_trained), np.flatnonzero(~is_trained)
        histories = self._histories
        lists.put(trained, maker.make(histories.rows(user_index[trained]), user_index[trained]))
        lists.put(new, maker.make(histories.rows(user_index[new]), None))
        return lists

    def _catalogue_index(self, ids: Sequence[Id]) -> NDArray[np.int64]:
        index = lookup_all(self.run.items, ids)
        unseen = list(compress(ids, index >= self.run.num_items))
        if unseen:
            raise UnknownIdError(
                f"{len(unseen)} of {len(ids)} items were never seen in training, so nothing is "
                f"known of what they are similar to: {named(unseen)}"
            )
        return index


def load(run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
    """Open a run to recommend from: ``load("runs/mine").recommend([42], k=10)``."""
    return Recommender.open(run, device)

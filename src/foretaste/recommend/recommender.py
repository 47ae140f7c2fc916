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
from foretaste.models.base import RecommenderModel
from foretaste.recommend.answers import Answer, make_answers
from foretaste.recommend.export import (
    Export,
    check_output,
    lists_schema,
    lists_table,
    table_writer,
)
from foretaste.recommend.ids import Id, as_ids, check_k, lookup_all, named
from foretaste.recommend.ranker import Ranked, Ranker, batches
from foretaste.recommend.ranking import BLOCKED, top_columns
from foretaste.recommend.shelf import make_shelf, reason_for_fewer
from foretaste.runs.loading import load_model
from foretaste.runs.run import Run

_NOTHING_KNOWN = "popularity order: nothing in the history was seen in training"


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
    def open(cls, path: Path | str, device: str | torch.device = "auto") -> Recommender:
        """Open a run directory on ``device``: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
        run = Run.open(path)
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
        ranker = self._ranker(k, exclude, candidates, include_seen)
        ranked = self._rank_users(user_index, ranker)
        lengths = self._histories.lengths()[user_index]
        reasons = [[] if length else [_NOTHING_KNOWN] for length in lengths]
        asked = self.run.users.ids(user_index)
        return make_answers(
            "user", asked, ranked, self.run.items, _with_ranker(reasons, ranked, ranker)
        )

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
        known, reasons = self._known_histories(given)
        ranker = self._ranker(k, exclude, candidates, include_seen)
        ranked = ranker.rank(known, None)
        reasons = _with_ranker(reasons, ranked, ranker)
        return make_answers("history", [None] * len(given), ranked, self.run.items, reasons)

    def similar_items(self, item_ids: Iterable[Id], k: int = 10) -> list[Answer]:
        """The k items of the catalogue most similar to each given item, itself left out.

        Raises UnknownIdError for an item that training never saw, and UnsupportedError where the
        model learns nothing of items that could be compared.
        """
        k = check_k(k)
        index = self._catalogue_index(as_ids("item_ids", item_ids))
        num_others = self.run.num_items - 1
        ranked = Ranked.empty(len(index), min(k, num_others))
        for rows in batches(len(index), self.run.num_items, self.model.device):
            item_index_B = torch.tensor(index[rows], device=self.model.device)
            scores_BI = self.model.similarity(item_index_B)
            scores_BI = scores_BI.scatter(1, item_index_B[:, None], BLOCKED)
            ranked.put(rows, Ranked.of(*top_columns(scores_BI, min(k, num_others))))
        fewer = reason_for_fewer(min(k, num_others), k, num_others, "other items in the catalogue")
        reasons = [[fewer] if fewer else []] * len(index)
        return make_answers("item", self.run.items.ids(index), ranked, self.run.items, reasons)

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
        ranker = self._ranker(k, exclude, candidates, include_seen)
        num_users, num_rows, num_short = len(self.run.users), 0, 0
        with table_writer(path, lists_schema(self.run.users, self.run.items)) as write:
            for user_index in batches(num_users, ranker.num_columns, self.model.device):
                ranked = self._rank_users(user_index, ranker)
                write(lists_table(self.run.users, self.run.items, user_index, ranked))
                num_rows += int(ranked.length.sum())
                num_short += int(np.count_nonzero(ranked.length < ranker.k))
                if progress is not None:
                    progress(int(user_index[-1]) + 1, num_users)
        return Export(
            path=path,
            num_users=num_users,
            num_rows=num_rows,
            num_short_lists=num_short,
            num_popularity_lists=int(np.count_nonzero(self._histories.lengths() == 0)),
            notes=ranker.shelf.notes,
        )

    @cached_property
    def _histories(self) -> Histories:
        """The history of each user of the run, items of the catalogue only."""
        return self.run.histories.within(self.run.num_items)

    def _ranker(
        self,
        k: int,
        exclude: Iterable[Id],
        candidates: Iterable[Id] | None,
        include_seen: bool,
    ) -> Ranker:
        shelf = make_shelf(
            self.run.items, self.run.num_items, candidates=candidates, exclude=exclude
        )
        return Ranker(self.model, shelf, k=check_k(k), include_seen=include_seen)

    def _rank_users(self, user_index: NDArray[np.int64], ranker: Ranker) -> Ranked:
        """Rank for users of the run: by their trained rows, folded in where training had none."""
        ranked = Ranked.empty(len(user_index), ranker.num_places)
        is_trained = user_index < self.run.num_train_users
        trained, new = np.flatnonzero(is_trained), np.flatnonzero(~is_trained)
        histories = self._histories
        ranked.put(trained, ranker.rank(histories.rows(user_index[trained]), user_index[trained]))
        ranked.put(new, ranker.rank(histories.rows(user_index[new]), None))
        return ranked

    def _known_histories(self, given: Sequence[Sequence[Id]]) -> tuple[Histories, list[list[str]]]:
        """What training saw of the given histories, and for each what to say of the rest."""
        num_items = self.run.num_items
        row = np.repeat(np.arange(len(given)), [len(ids) for ids in given])
        index = self.run.items.lookup([value for ids in given for value in ids])
        is_known = (index >= 0) & (index < num_items)
        known = Histories.from_pairs(
            row[is_known], index[is_known], num_users=len(given), num_items=num_items
        )
        reasons = []
        ends = np.cumsum([len(ids) for ids in given])
        for ids, end in zip(given, ends, strict=True):
            ignored = list(compress(ids, ~is_known[end - len(ids) : end]))
            reasons.append(_history_reason(len(ids), ignored))
        return known, reasons

    def _catalogue_index(self, ids: Sequence[Id]) -> NDArray[np.int64]:
        index = lookup_all(self.run.items, ids)
        unseen = list(compress(ids, index >= self.run.num_items))
        if unseen:
            raise UnknownIdError(
                f"{len(unseen)} of {len(ids)} items were never seen in training, so nothing is "
                f"known of what they are similar to: {named(unseen)}"
            )
        return index


def _history_reason(num_items: int, ignored: Sequence[Id]) -> list[str]:
    if num_items == 0:
        return ["popularity order: the history is empty"]
    if not ignored:
        return []
    if len(ignored) == num_items:
        return [f"{_NOTHING_KNOWN}: {named(ignored)}"]
    items = "1 item" if len(ignored) == 1 else f"{len(ignored)} items"
    return [f"{items} of the history ignored, never seen in training: {named(ignored)}"]


def _with_ranker(reasons: Sequence[list[str]], ranked: Ranked, ranker: Ranker) -> list[list[str]]:
    """The reasons of each answer, completed by what all answers of one ranker share."""
    return [
        [*ranker.reason(int(length)), *own, *ranker.shelf.notes]
        for own, length in zip(reasons, ranked.length, strict=True)
    ]

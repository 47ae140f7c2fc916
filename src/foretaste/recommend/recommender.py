"""A model answering: known users, new users by their history, similar items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from foretaste._util.settings import Count, checked
from foretaste.data.histories import Histories
from foretaste.data.ids import Ids, IdTable
from foretaste.models.base import RecommenderModel, UserState
from foretaste.recommend import Unknown
from foretaste.recommend.answers import COLUMNS, Answers, SimilarUsers, make_answers
from foretaste.recommend.export import Export, Output, write_lists
from foretaste.recommend.histories_in_turn import HistoriesInTurn
from foretaste.recommend.inputs import (
    NOTHING_KNOWN,
    UNKNOWN_USER,
    GivenHistories,
    RequestedHistories,
    RequestedUsers,
    catalogue_index,
    examples,
)
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.top_k import (
    SimilarItemRanker,
    TopItems,
    UserRanker,
    per_user,
    similar_rows,
)
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
        user_ids: Ids,
        k: int = 10,
        *,
        exclude: Ids = (),
        candidates: Ids | None = None,
        include_seen: bool = False,
        unknown: Unknown = "error",
    ) -> Answers:
        """One answer per user, in the order asked; repeats are allowed.

        Users held out of training are answered from their histories. Users that the run does not
        know raise UnknownIdError, whose ``ids`` they are; with ``unknown="skip"`` they have no
        answer, with ``unknown="popular"`` one in popularity order that says so.
        """
        users = RequestedUsers.of(self.users, user_ids, unknown)
        ranker = self._ranker(k, exclude, candidates, include_seen)
        top = self._rank(users, ranker)
        return make_answers("user", users.ids(), top, self.items, ranker.reasons(top))

    def recommend_for(
        self,
        histories: GivenHistories,
        k: int = 10,
        *,
        exclude: Ids = (),
        candidates: Ids | None = None,
        include_seen: bool = False,
    ) -> Answers:
        """One answer per history: the item ids of a user whom the run need not know.

        A mapping names the users, ``{"anna": [1, 5]}``, and the answers have their names. Items
        that training never saw are ignored, and named in the reason. A history of which nothing is
        left is answered in popularity order.
        """
        requested = RequestedHistories.of(histories)
        ranker = self._ranker(k, exclude, candidates, include_seen)
        top = self._rank(requested, ranker)
        return make_answers(requested.kind, requested.names, top, self.items, ranker.reasons(top))

    def similar_items(self, item_ids: Ids, k: int = 10) -> Answers:
        """The k items of the catalogue most similar to each given item, itself left out.

        Raises UnknownIdError for an item that training never saw, and UnsupportedError where the
        model learns nothing of items that could be compared.
        """
        ranker = SimilarItemRanker(self.model, k=checked("k", k, Count))
        index = catalogue_index(self.items, self.model.num_items, item_ids)
        top, items = ranker.rank(index), self.items
        return make_answers("item", items.ids(index), top, items, ranker.reasons(top))

    def similar_users(self, user_ids: Ids, k: int = 10) -> list[SimilarUsers]:
        """The k users most similar to each given user, by the cosine of their vectors.

        Users of whose history training saw nothing are in no list, and their own is empty. Raises
        UnsupportedError where the model has no `user_vectors`.
        """
        k = checked("k", k, Count)
        users = RequestedUsers.of(self.users, user_ids, "error")
        vectors_UD = torch.from_numpy(self._unit_user_vectors).to(self.model.device)
        top = similar_rows(vectors_UD, users.user_index, k)
        return [
            SimilarUsers(
                id=user_id,
                user_ids=self.users.ids(top.item_index[row, :length]),
                scores=top.score[row, :length].tolist(),
            )
            for row, (user_id, length) in enumerate(zip(users.ids(), top.length, strict=True))
        ]

    def score(self, user_ids: Ids, item_ids: Ids) -> NDArray[np.float32]:
        """Scores of the given items for each given user, seen items too: [users, items].

        Only their order within one user means anything. Raises UnknownIdError for users that the
        run does not know and items that training never saw.
        """
        index = RequestedUsers.of(self.users, user_ids, "error").user_index
        return self._score(self.known_histories.rows(index), index, item_ids)

    def score_for(self, histories: GivenHistories, item_ids: Ids) -> NDArray[np.float32]:
        """Scores of the given items for each history, as `score` has them for known users."""
        requested = RequestedHistories.of(histories)
        known, _ = requested.known_items(self.items, self.model.num_items)
        return self._score(known, np.full(len(known), self.model.num_users), item_ids)

    def user_vectors(self, user_ids: Ids | None = None) -> NDArray[np.float32]:
        """Vectors [users, D] of the given users, or of all in the order of the run.

        Users held out of training are folded in. Raises UnsupportedError where the model has none.
        """
        index = np.arange(len(self.users))
        if user_ids is not None:
            index = RequestedUsers.of(self.users, user_ids, "error").user_index
        return per_user(
            self.model, self.known_histories.rows(index), index, self.model.user_vectors
        )

    def item_vectors(self, item_ids: Ids | None = None) -> NDArray[np.float32]:
        """Vectors [items, D] of the given items, or of the catalogue in its order.

        Raises UnsupportedError where the model has none.
        """
        with torch.no_grad():
            vectors: NDArray[np.float32] = self.model.item_vectors().float().cpu().numpy()
        if item_ids is None:
            return vectors
        return vectors[
            catalogue_index(self.items, self.model.num_items, item_ids, "they have no vector")
        ]

    def similar_all(
        self,
        output: Path | str,
        k: int = 10,
        *,
        item_ids: Ids | None = None,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write what is most similar to every item of the catalogue, or to these, to a file.

        One row per similar item, as `recommend_all` writes them; the first column is similar_to.
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        ranker = SimilarItemRanker(self.model, k=checked("k", k, Count))
        index = np.arange(self.model.num_items)
        if item_ids is not None:
            index = catalogue_index(self.items, self.model.num_items, item_ids)
        about = pa.table({COLUMNS["item"]: self.items.table.column("id").take(index)})
        return write_lists(
            file, about, self.items, ranker, lambda rows: ranker.rank(index[rows]), progress
        )

    def recommend_all(
        self,
        output: Path | str,
        k: int = 10,
        *,
        user_ids: Ids | None = None,
        exclude: Ids = (),
        candidates: Ids | None = None,
        include_seen: bool = False,
        unknown: Unknown = "error",
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists of every user, or of these, to a ``.parquet``, ``.csv`` or ``.jsonl``.

        One row per recommended item: user_id, rank from 1, item_id, score and, where there are
        any, title. Lists are written as they are made; ``output`` appears once it is whole. With a
        / at its end it is a directory, in which each rank writes a part file: together, in the
        order of their names, they have the rows of one file.
        ``progress`` is called with the number of users done and in all. Raises SettingError where
        ``output`` exists, unless ``overwrite``. ``spreadsheet_safe`` puts an apostrophe before text
        in a CSV that a spreadsheet would compute, ids included. ``unknown`` is as in `recommend`;
        the notes of what was written count such users, and the column user_id is text where one of
        them is no integer.
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        ranker = self._ranker(k, exclude, candidates, include_seen)
        if user_ids is None:
            users = RequestedUsers(users=self.users, user_index=np.arange(len(self.users)))
        else:
            users = RequestedUsers.of(self.users, user_ids, unknown)
        about = pa.table({COLUMNS["user"]: users.column()})
        in_turn = HistoriesInTurn(self.run) if self.run and user_ids is None else None
        rank = partial(self._rank, users, ranker, in_turn=in_turn)
        return write_lists(file, about, self.items, ranker, rank, progress, users.notes)

    def recommend_all_for(
        self,
        output: Path | str,
        histories: GivenHistories,
        k: int = 10,
        *,
        exclude: Ids = (),
        candidates: Ids | None = None,
        include_seen: bool = False,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists that `recommend_for` makes of histories, as `recommend_all` does.

        The first column is user_id where a mapping names the users, else history: 0, 1, 2, ...
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        ranker = self._ranker(k, exclude, candidates, include_seen)
        requested = RequestedHistories.of(histories)
        about = pa.table({COLUMNS[requested.kind]: requested.column()})
        rank = partial(self._rank, requested, ranker)
        export = write_lists(file, about, self.items, ranker, rank, progress)
        if export.num_users == export.num_popularity_lists > 0:
            hint = f"nothing in the histories was seen in training; {examples(self.items)}"
            return replace(export, notes=(*export.notes, hint))
        return export

    @cached_property
    def known_histories(self) -> Histories:
        """The history of each user of the run, items of the catalogue only; an empty one follows,
        for users the run does not know."""
        histories = self._all_histories
        if callable(histories):
            histories = histories()
        return histories.within(self.model.num_items).padded(len(self.users) + 1)

    def _ranker(
        self, k: int, exclude: Ids, candidates: Ids | None, include_seen: bool
    ) -> UserRanker:
        item_filter = ItemFilter.of(
            self.items, self.model.num_items, candidates=candidates, exclude=exclude
        )
        k, include_seen = checked("k", k, Count), checked("include_seen", include_seen, bool)
        return UserRanker(self.model, item_filter, k=k, include_seen=include_seen)

    def _rank(
        self,
        requested: RequestedUsers | RequestedHistories,
        ranker: UserRanker,
        rows: slice = slice(None),
        in_turn: HistoriesInTurn | None = None,
    ) -> TopItems:
        """Lists for a request, or for some rows of it: all users ``in_turn``, say."""
        if isinstance(requested, RequestedUsers):
            user_index = requested.user_index[rows]
            if in_turn is None:
                histories = self.known_histories.rows(user_index)
            else:
                histories = in_turn.rows(user_index).within(self.model.num_items)
            remarks = [[] if known else [NOTHING_KNOWN] for known in histories.lengths()]
            for row in np.flatnonzero(user_index == len(self.users)):
                remarks[row] = [UNKNOWN_USER]
        else:
            histories, remarks = requested.known_items(self.items, self.model.num_items, rows)
            user_index = np.full(len(histories), self.model.num_users)
        return ranker.rank(histories, user_index, remarks)

    def _score(
        self, histories: Histories, user_index: NDArray[np.int64], item_ids: Ids
    ) -> NDArray[np.float32]:
        index = catalogue_index(self.items, self.model.num_items, item_ids, "they have no score")
        item_index_C = torch.tensor(index, device=self.model.device)

        def score(state: UserState) -> torch.Tensor:
            return self.model.score_candidates(state, item_index_C.expand(len(state), -1))

        return per_user(self.model, histories, user_index, score, num_values=len(index))

    @cached_property
    def _unit_user_vectors(self) -> NDArray[np.float32]:
        """Vectors of all users, of length 1; of length 0 where nothing is known of the user."""
        vectors = self.user_vectors()
        vectors[self.known_histories.lengths()[:-1] == 0] = 0
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.maximum(lengths, np.finfo(np.float32).tiny)
        return vectors


def load(run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
    """Open a run to recommend from: ``load("runs/mine").recommend([42], k=10)``."""
    return Recommender.open(run, device)

"""The recommender: answers of a model for known users, new users by history, and similar items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from foretaste._util.settings import Count, checked
from foretaste.data.config import PairsConfig
from foretaste.data.histories import Histories
from foretaste.data.ids import Id, Ids, IdTable, as_ids, id_array
from foretaste.models.base import RecommenderModel, UserState
from foretaste.recommend.answers import COLUMNS, Answers, make_answers
from foretaste.recommend.config import Unknown
from foretaste.recommend.export import Export, Output, write_lists
from foretaste.recommend.inputs import (
    EMPTY_HISTORY,
    NOTHING_KNOWN,
    UNKNOWN_USER,
    AskedUsers,
    GivenHistories,
    catalogue_index,
    examples,
    given_histories,
    known_items,
    lookup_all,
)
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.requests import ListRequest, answer_requests
from foretaste.recommend.rules import ItemRules
from foretaste.recommend.top_k import (
    SimilarItemRanker,
    TopItems,
    UserHistories,
    UserRanker,
    per_user,
)
from foretaste.runs.run import Run, load_model


class Recommender:
    """Recommender of one model, in the customer's own ids.

    Every answer has exactly k items or a reason why not. Items in the history are left out unless
    ``include_seen``. ``candidates`` restricts lists to these items, such as those in stock, and
    ``exclude`` removes items. In both, ids that training never saw are ignored, and the reason
    names them. Items must meet all ``rules``, which are names of `read_rules`, and ``where``, SQL
    on the columns of the items. ``max_per`` limits the items of a list with the same value in a
    column: ``{"brand": 2}``.
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
        """Recommend with ``model``, whose rows are the first ones of ``users`` and of ``items``.

        ``histories`` has one row per entry of ``users``, or is a function that reads them on first
        use. ``run`` is the run of all these, if there is one.
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
        """Open a run, or its path, on device ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
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
        rules: Sequence[str] = (),
        where: str | None = None,
        max_per: Mapping[str, int] | None = None,
        reasons: bool = False,
        unknown: Unknown = "error",
    ) -> Answers:
        """One answer per user, in the order asked; repeats are allowed.

        Users held out of training are answered from their histories. Users unknown to the run raise
        UnknownIdError, which has their ``ids``. With ``unknown="skip"`` they get no answer; with
        ``unknown="popular"`` they get one in popularity order, with that reason. With ``reasons``,
        ``because`` of an answer has the items of the history that are nearest to each listed item.
        """
        users = AskedUsers.known(self.users, user_ids, unknown)
        return self._answers(
            users,
            k=k,
            exclude=exclude,
            candidates=candidates,
            include_seen=include_seen,
            rules=rules,
            where=where,
            max_per=max_per,
            reasons=reasons,
        )

    def recommend_for(
        self,
        histories: GivenHistories,
        k: int = 10,
        *,
        exclude: Ids = (),
        candidates: Ids | None = None,
        include_seen: bool = False,
        rules: Sequence[str] = (),
        where: str | None = None,
        max_per: Mapping[str, int] | None = None,
        reasons: bool = False,
    ) -> Answers:
        """One answer per history, which is a list of item ids; the run need not know the user.

        The last item is the newest, for a model that uses the order; an item that comes twice has
        its last place. A mapping names the users, ``{"anna": [1, 5]}``, and the answers have these
        names. Items that training never saw are ignored, and the reason names them. A history
        without other items is answered in popularity order.
        """
        users = AskedUsers.new(self.users, histories)
        return self._answers(
            users,
            k=k,
            exclude=exclude,
            candidates=candidates,
            include_seen=include_seen,
            rules=rules,
            where=where,
            max_per=max_per,
            reasons=reasons,
        )

    def lists(self, users: AskedUsers, requests: Sequence[ListRequest]) -> list[TopItems]:
        """The lists of each request; requests take ``users`` in turn, as in `answer_requests`.

        Unknown users without a history are answered in popularity order. Known users with further
        items are folded in with all their items, the given ones last.
        """
        histories = self._look_up(users)
        return answer_requests(self.model, self.items, self.item_rules, histories, requests)

    def similar_items(self, item_ids: Ids, k: int = 10) -> Answers:
        """The k items of the catalogue most similar to each given item, without that item.

        Raises UnknownIdError for an item that training never saw, and UnsupportedError if the model
        cannot compare items.
        """
        ranker = SimilarItemRanker(self.model, k=checked("k", k, Count))
        index = catalogue_index(self.items, self.model.num_items, item_ids)
        top = ranker.with_reasons(ranker.rank(index))
        return make_answers("item", self.items.ids(index), top, self.items)

    def score(self, user_ids: Ids, item_ids: Ids) -> NDArray[np.float32]:
        """Scores of the given items for each given user, seen items too: [users, items].

        Scores are comparable within one user only. Raises UnknownIdError for users unknown to the
        run and for items that training never saw.
        """
        index = self._user_index(user_ids)
        return self._score(self.known_histories.rows(index), index, item_ids)

    def score_for(self, histories: GivenHistories, item_ids: Ids) -> NDArray[np.float32]:
        """Scores of the given items for each history: [histories, items], as `score`."""
        _, given = given_histories(histories)
        known, _ = known_items(given, self.items, self.model.num_items, [False] * len(given))
        return self._score(known, np.full(len(known), self.model.num_users), item_ids)

    def user_vectors(self, user_ids: Ids | None = None) -> NDArray[np.float32]:
        """Vectors [users, D] of the given users, or of all in the order of the run.

        Users held out of training are folded in. Raises UnsupportedError if the model has none.
        """
        index = np.arange(len(self.users))
        if user_ids is not None:
            index = self._user_index(user_ids)
        return per_user(
            self.model, self.known_histories.rows(index), index, self.model.user_vectors
        )

    def item_vectors(self, item_ids: Ids | None = None) -> NDArray[np.float32]:
        """Vectors [items, D] of the given items, or of the catalogue in its order.

        Raises UnsupportedError if the model has none.
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
        """Write the most similar items of every item of the catalogue, or of these, to a file.

        The file has one row per similar item, as that of `recommend_all`; its first column is
        similar_to.
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
        rules: Sequence[str] = (),
        where: str | None = None,
        max_per: Mapping[str, int] | None = None,
        unknown: Unknown = "error",
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists of every user, or of these, to a ``.parquet``, ``.csv`` or ``.jsonl``.

        The file has one row per recommended item: user_id, rank from 1, item_id, score and, if the
        run has titles, title. Lists are written as they are made, and ``output`` appears once it is
        complete.

        ``progress`` is called with the number of users done and the number in all. Raises
        SettingError if ``output`` exists, unless ``overwrite``. ``spreadsheet_safe`` puts an
        apostrophe before text in a CSV file that a spreadsheet would compute, ids included.
        ``unknown`` is as in `recommend`; the notes count unknown users. The column user_id is text
        if one of them is no integer.
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        ranker = self._ranker(k, exclude, candidates, include_seen, rules, where, max_per)
        column = self.users.table.column("id")
        if user_ids is None:
            users = AskedUsers(ids=None, user_index=np.arange(len(self.users)))
        else:
            users = AskedUsers.known(self.users, user_ids, unknown)
            is_foreign = (users.user_index == len(self.users)).any()
            column = (
                id_array(cast("Sequence[Id]", users.ids))
                if is_foreign
                else column.take(users.user_index)
            )

        def rank(rows: slice) -> TopItems:
            return ranker.rank(self._look_up(users, rows))

        about = pa.table({COLUMNS["user"]: column})
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
        rules: Sequence[str] = (),
        where: str | None = None,
        max_per: Mapping[str, int] | None = None,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Export:
        """Write the lists of `recommend_for` to a file, as `recommend_all` does.

        The first column is user_id if a mapping names the users, otherwise history: 0, 1, 2, ...
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        ranker = self._ranker(k, exclude, candidates, include_seen, rules, where, max_per)
        users = AskedUsers.new(self.users, histories)
        names = range(len(users.user_index)) if users.ids is None else users.ids
        about = pa.table({COLUMNS[users.kind]: pa.array(names)})

        def rank(rows: slice) -> TopItems:
            return ranker.rank(self._look_up(users, rows))

        export = write_lists(file, about, self.items, ranker, rank, progress)
        if export.num_users == export.num_popularity_lists > 0:
            hint = f"nothing in the histories was seen in training; {examples(self.items)}"
            return replace(export, notes=(*export.notes, hint))
        return export

    def read_rules(
        self,
        rules_file: Path | str | None = None,
        items: Any = None,
        files: PairsConfig | None = None,
    ) -> None:
        """Read the rules of a file, by name; they replace those read before.

        ``rules_file`` is TOML with one SQL condition per rule, on the columns of the run's items:
        ``in-stock = "stock > 0"``. ``items`` is a file or frame with further columns, which replace
        those of the same name; ``files`` has its format. An item that it lacks has no value in
        these columns, and meets no condition on them. Another call reads the files again. After an
        InputError or SettingError the rules are unchanged.
        """
        self.item_rules = ItemRules.read(self.items, self.model.num_items, rules_file, items, files)

    @cached_property
    def item_rules(self) -> ItemRules:
        """The rules read last, and the columns of the items."""
        return ItemRules(self.items, self.model.num_items)

    @cached_property
    def known_histories(self) -> Histories:
        """The history of each user of the run, with catalogue items only. The last row is empty; it
        is that of all unknown users."""
        histories = self._all_histories
        if callable(histories):
            histories = histories()
        return histories.within(self.model.num_items).padded(len(self.users) + 1)

    def _ranker(
        self,
        k: int,
        exclude: Ids,
        candidates: Ids | None,
        include_seen: bool,
        rules: Sequence[str],
        where: str | None,
        max_per: Mapping[str, int] | None,
    ) -> UserRanker:
        item_filter = ItemFilter.of(
            self.items,
            self.model.num_items,
            candidates=candidates,
            exclude=exclude,
            condition=self.item_rules.condition(rules, where),
        )
        return UserRanker(
            self.model,
            item_filter,
            k=checked("k", k, Count),
            include_seen=checked("include_seen", include_seen, bool),
            max_per=self.item_rules.max_per(max_per),
        )

    def _answers(
        self, users: AskedUsers, *, k: int, include_seen: bool, reasons: bool, **others: Any
    ) -> Answers:
        request = ListRequest(
            num_users=len(users.user_index),
            k=checked("k", k, Count),
            include_seen=checked("include_seen", include_seen, bool),
            reasons=checked("reasons", reasons, bool),
            **others,
        )
        (top,) = self.lists(users, [request])
        return make_answers(users.kind, users.ids, top, self.items)

    def _look_up(self, asked: AskedUsers, rows: slice = slice(None)) -> UserHistories:
        """The users, or some of them, with their histories from the run and the given items."""
        user_index, num_items = asked.user_index[rows], self.model.num_items
        if (user_index < len(self.users)).any():
            histories = self.known_histories.rows(user_index)
        else:  # only new users: the run's histories need not be read
            histories = Histories.empty(num_users=len(user_index), num_items=num_items)
        has_items = histories.lengths() > 0
        given = None if asked.histories is None else asked.histories[rows]
        remarks: list[list[str]] = [[] for _ in user_index]
        if given is not None:
            num_kept = histories.lengths()
            more, remarks = known_items(
                [ids or () for ids in given], self.items, num_items, has_items
            )
            histories = histories.followed_by(more) if has_items.any() else more
            # A known user is folded in as a new one only if some given item is not in the run's
            # history, or if a given item that is there moves to its end.
            is_further = histories.lengths() > num_kept
            if self.model.config.uses_order:
                is_further |= more.lengths() > 0
            user_index = np.where(is_further, self.model.num_users, user_index)
            has_items |= np.array([bool(ids) for ids in given], dtype=bool)
        for row in np.flatnonzero(~has_items).tolist():
            if given is not None and given[row] is not None:
                remarks[row] = [EMPTY_HISTORY]
            elif user_index[row] < len(self.users):
                remarks[row] = [NOTHING_KNOWN]
            else:
                remarks[row] = [UNKNOWN_USER]
        return UserHistories(user_index, histories, remarks)

    def _user_index(self, user_ids: Ids) -> NDArray[np.int64]:
        return lookup_all(self.users, as_ids("user_ids", user_ids))

    def _score(
        self, histories: Histories, user_index: NDArray[np.int64], item_ids: Ids
    ) -> NDArray[np.float32]:
        index = catalogue_index(self.items, self.model.num_items, item_ids, "they have no score")
        item_index_C = torch.tensor(index, device=self.model.device)

        def score(state: UserState) -> torch.Tensor:
            return self.model.score_candidates(state, item_index_C.expand(len(state), -1))

        return per_user(self.model, histories, user_index, score, num_values=len(index))


def load(run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
    """Open a run to recommend from: ``load("runs/mine").recommend([42], k=10)``."""
    return Recommender.open(run, device)

"""The recommender: answers of a model for known users, new users by history, and similar items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Unpack, cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from foretaste._util.files import without_links
from foretaste._util.settings import Count, validate
from foretaste._util.signatures import with_keywords_of
from foretaste.data.config import PairsConfig
from foretaste.data.histories import Histories
from foretaste.data.ids import Id, Ids, IdTable, as_ids, id_array
from foretaste.errors import SettingError
from foretaste.models.base import RecommenderModel, UserState
from foretaste.recommend.answers import COLUMNS, Answers, make_answers
from foretaste.recommend.config import FilterOptions, ListOptions, ListRequest, Unknown
from foretaste.recommend.export import Export, Output, Progress, write_lists
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
from foretaste.recommend.requests import answer_requests
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

    Every answer has exactly k items or a reason why not.
    """

    def __init__(
        self,
        model: RecommenderModel,
        users: IdTable,
        items: IdTable,
        histories: Histories | Callable[[], Histories],
        *,
        seen: Histories | Callable[[], Histories | None] | None = None,
        run: Run | None = None,
    ) -> None:
        """Recommend with ``model``, whose rows are the first ones of ``users`` and of ``items``.

        ``histories`` has one row per entry of ``users``, or is a function that reads them on first
        use. ``seen`` has the same form, with the items that each user disliked; lists leave them
        out. ``run`` is the run of all these, if there is one.
        """
        self.model = model
        self.users = users
        self.items = items
        self.run = run
        self._is_of_matrix = run is not None and run.config.is_of_matrix
        self._all_histories = histories
        self._all_seen = seen

    def __getstate__(self) -> dict[str, object]:
        """Return all attributes with the histories, so a pickle answers without the run's files."""
        return self.__dict__ | {
            name: rows() if callable(rows := getattr(self, name)) else rows
            for name in ("_all_histories", "_all_seen")
        }

    def __repr__(self) -> str:
        if self.run is None:
            return f"Recommender({type(self.model).__name__})"
        return f"Recommender({str(self.run.path)!r}, {self.run.config.model})"

    @classmethod
    def open(cls, run: Run | Path | str, device: str | torch.device = "auto") -> Recommender:
        """Open a run, or its path, on device ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
        # Follow a link once, because it may lead to another run before the first answer.
        opened = (
            run if isinstance(run, Run) else Run.open(without_links(validate("run", run, Path)))
        )
        model = load_model(opened, device)
        histories, seen = (lambda: opened.histories), (lambda: opened.seen)
        return cls(model, opened.users, opened.items, histories, seen=seen, run=opened)

    @with_keywords_of(ListOptions, ListRequest)
    def recommend(
        self,
        user_ids: Ids,
        k: int = ListRequest.k,
        *,
        unknown: Unknown = "error",
        **options: Unpack[ListOptions],
    ) -> Answers:
        """Return one answer per user, in the order asked; repeats are allowed.

        Users held out of training are answered from their histories.

        Args:
            user_ids: one id or several.
            k: items per list.
            unknown: for users unknown to the run, ``error`` raises UnknownIdError, which has their
                ``ids``, ``skip`` gives no answer, and ``popular`` one in popularity order, with
                that reason.
            exclude: ids of items to leave out.
            candidates: ids of items that may be recommended, such as those in stock; None for all.
                Ids here and in ``exclude`` that training never saw are ignored, and the reason
                names them.
            include_seen: also recommend items that the user has already or disliked.
            rules: names of rules that were read by `read_rules`; items must meet all of them.
            where: SQL condition on the columns of items, ``"stock > 0"``, which items must meet.
            max_per: most items of a list with the same value in a column: ``{"brand": 2}``.
            reasons: give the items of the history that are nearest to each listed item, as
                ``because`` of an answer.
        """
        users = AskedUsers.known(self.users, user_ids, unknown)
        return self.answers(users, ListRequest.of(k, **options))

    @with_keywords_of(ListOptions, ListRequest)
    def recommend_for(
        self,
        histories: GivenHistories,
        k: int = ListRequest.k,
        **options: Unpack[ListOptions],
    ) -> Answers:
        """Return one answer per history, a list of item ids; the run need not know the user.

        The last item is the newest, for a model that uses the order; an item that comes twice has
        its last place. A mapping names the users, ``{"anna": [1, 5]}``, and the answers have these
        names. The rows of a SciPy matrix are histories if the model was fitted on a matrix. Items
        that training never saw are ignored, and the reason names them. A history without other
        items is answered in popularity order. `recommend` explains the other arguments.
        """
        users = AskedUsers.new(self.users, self._without_matrix(histories))
        return self.answers(users, ListRequest.of(k, **options))

    def _without_matrix(self, histories: GivenHistories) -> GivenHistories:
        """Return histories without a matrix: its rows are lists of the columns with an entry."""
        if not hasattr(histories, "tocsr"):
            return histories
        if not self._is_of_matrix:
            raise SettingError(
                "histories is a SciPy matrix, and only a model of data that were a matrix takes "
                "it; give lists of item ids"
            )
        matrix = histories.tocsr()
        return [matrix.indices[slice(*ends)].tolist() for ends in pairwise(matrix.indptr)]

    def answers(self, users: AskedUsers, request: ListRequest) -> Answers:
        """Answer a request: one list per user, with ids and titles."""
        ids = users.ids
        if ids is None and users.kind == "user":
            ids = self.users.ids(users.user_index)
        return make_answers(users.kind, ids, self.lists(users, request), self.items)

    def lists(self, users: AskedUsers, request: ListRequest) -> TopItems:
        """Make the lists of a request.

        Unknown users without a history are answered in popularity order. Known users with further
        items are folded in with all their items, the given ones last.
        """
        return self.lists_together(users, [(len(users), request)])[0]

    def lists_together(
        self, users: AskedUsers, requests: Sequence[tuple[int, ListRequest]]
    ) -> list[TopItems]:
        """Make the lists of several requests, scored together.

        Each pair has a number of users, taken from the front, and the request for their lists.
        """
        return answer_requests(self.model, self.item_rules, self._look_up(users), requests)

    def similar_items(self, item_ids: Ids, k: int = 10) -> Answers:
        """Return the k items of the catalogue most similar to each given item, without that item.

        Raises UnknownIdError for an item that training never saw, and UnsupportedError if the model
        cannot compare items.
        """
        ranker = SimilarItemRanker(self.model, k=validate("k", k, Count))
        index = catalogue_index(self.items, self.model.num_items, item_ids)
        top = ranker.with_reasons(ranker.rank(index))
        return make_answers("item", self.items.ids(index), top, self.items)

    def score(self, user_ids: Ids, item_ids: Ids) -> NDArray[np.float32]:
        """Return scores of the given items for each given user, seen items too: [users, items].

        Scores are comparable within one user only. Raises UnknownIdError for users unknown to the
        run and for items that training never saw.
        """
        index = self._user_index(user_ids)
        return self._score(self.known_histories.rows(index), index, item_ids)

    def score_for(self, histories: GivenHistories, item_ids: Ids) -> NDArray[np.float32]:
        """Return scores of the given items for each history: [histories, items], as `score`."""
        _, given = given_histories(self._without_matrix(histories))
        known, _ = known_items(given, self.items, self.model.num_items, [False] * len(given))
        return self._score(known, np.full(len(known), self.model.num_users), item_ids)

    def user_vectors(self, user_ids: Ids | None = None) -> NDArray[np.float32]:
        """Return vectors [users, D] of the given users, or of all in the order of the run.

        Users held out of training are folded in. Raises UnsupportedError if the model has none.
        """
        index = np.arange(len(self.users))
        if user_ids is not None:
            index = self._user_index(user_ids)
        return per_user(
            self.model, self.known_histories.rows(index), index, self.model.user_vectors
        )

    def item_vectors(self, item_ids: Ids | None = None) -> NDArray[np.float32]:
        """Return vectors [items, D] of the given items, or of the catalogue in its order.

        Raises UnsupportedError if the model has none.
        """
        return self._select_items(self.model.item_vectors, item_ids)

    def _select_items(
        self, compute: Callable[[], torch.Tensor], item_ids: Ids | None
    ) -> NDArray[np.float32]:
        with torch.no_grad():
            vectors: NDArray[np.float32] = compute().float().cpu().numpy()
        if item_ids is None:
            return vectors
        reason = "they have no vector"
        return vectors[catalogue_index(self.items, self.model.num_items, item_ids, reason)]

    def index_vectors(self, item_ids: Ids | None = None) -> NDArray[np.float32]:
        """Return vectors [items, D] for an index: of the given items, or the catalogue in order.

        The inner product with a row of `query_vectors` is the score; a bias is a further column.
        Raises UnsupportedError if the model's scores are no inner products.
        """
        return self._select_items(self.model.index_vectors, item_ids)

    def query_vectors(self, user_ids: Ids | None = None) -> NDArray[np.float32]:
        """Return vectors [users, D], of these or all users, to look up among `index_vectors`.

        A user whose history tells the model nothing has zeros; popularity order answers that user.
        Raises UnsupportedError as `index_vectors` does.
        """
        index = np.arange(len(self.users)) if user_ids is None else self._user_index(user_ids)
        return self._queries(self.known_histories.rows(index), index)

    def query_vectors_for(self, histories: GivenHistories) -> NDArray[np.float32]:
        """Return vectors [histories, D] of new users, as `query_vectors`."""
        _, given = given_histories(self._without_matrix(histories))
        known, _ = known_items(given, self.items, self.model.num_items, [False] * len(given))
        return self._queries(known, np.full(len(known), self.model.num_users))

    def _queries(self, histories: Histories, user_index: NDArray[np.int64]) -> NDArray[np.float32]:
        def compute(state: UserState) -> torch.Tensor:
            return self.model.query_vectors(state) * state.has_history_B[:, None]

        return per_user(self.model, histories, user_index, compute)

    def similar_all(
        self,
        output: Path | str,
        k: int = 10,
        *,
        item_ids: Ids | None = None,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Progress | None = None,
    ) -> Export:
        """Write the most similar items of every item of the catalogue, or of these, to a file.

        The file has one row per similar item, like the file of `recommend_all`; its first column
        is similar_to.
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        return self.write_similar(item_ids, k, file, progress)

    def write_similar(
        self, item_ids: Ids | None, k: int, output: Output, progress: Progress | None = None
    ) -> Export:
        """Write the most similar items of these items, or of the whole catalogue, to a file."""
        ranker = SimilarItemRanker(self.model, k=validate("k", k, Count))
        index = np.arange(self.model.num_items)
        if item_ids is not None:
            index = catalogue_index(self.items, self.model.num_items, item_ids)
        about = pa.table({COLUMNS["item"]: self.items.table.column("id").take(index)})
        lists = (ranker.rank(index[rows]) for rows in ranker.batches(len(index)))
        return write_lists(output, about, self.items, lists, ranker.k, progress)

    @with_keywords_of(FilterOptions, ListRequest)
    def recommend_all(
        self,
        output: Path | str,
        k: int = ListRequest.k,
        *,
        user_ids: Ids | None = None,
        unknown: Unknown = "error",
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Progress | None = None,
        **options: Unpack[FilterOptions],
    ) -> Export:
        """Write the lists of every user, or of these, to a ``.parquet``, ``.csv`` or ``.jsonl``.

        The file has one row per recommended item: user_id, rank from 1, item_id, score and, if the
        run has titles, title. Lists are written as they are made, and ``output`` appears once it is
        complete.

        ``progress`` is called with the number of users done and the number in all. Raises
        SettingError if ``output`` exists, unless ``overwrite``. ``spreadsheet_safe`` puts an
        apostrophe before text in a CSV file that a spreadsheet would compute, ids included.
        `recommend` explains the other arguments; the notes count unknown users. The column user_id
        is text if one of them is no integer.
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        request = ListRequest.of(k, **options)
        if user_ids is None:
            users = AskedUsers.everyone(self.users)
        else:
            users = AskedUsers.known(self.users, user_ids, unknown)
        return self.write(users, request, file, progress)

    @with_keywords_of(FilterOptions, ListRequest)
    def recommend_all_for(
        self,
        output: Path | str,
        histories: GivenHistories,
        k: int = ListRequest.k,
        *,
        overwrite: bool = False,
        spreadsheet_safe: bool = False,
        progress: Progress | None = None,
        **options: Unpack[FilterOptions],
    ) -> Export:
        """Write the lists of `recommend_for` to a file, as `recommend_all` does.

        The first column is user_id if a mapping names the users, otherwise history: 0, 1, 2, ...
        """
        file = Output.of(output, overwrite=overwrite, spreadsheet_safe=spreadsheet_safe)
        users = AskedUsers.new(self.users, self._without_matrix(histories))
        return self.write(users, ListRequest.of(k, **options), file, progress)

    def write(
        self,
        users: AskedUsers,
        request: ListRequest,
        output: Output,
        progress: Progress | None = None,
    ) -> Export:
        """Write the lists of a request to a file, batch by batch."""
        if request.reasons:
            raise SettingError("reasons are part of answers, and not written to a file")
        item_filter = self.item_rules.filter(request)
        ranker = UserRanker(self.model, item_filter, request)
        lists = (ranker.rank(self._look_up(users[rows])) for rows in ranker.batches(len(users)))
        about = pa.table({COLUMNS[users.kind]: self._subjects(users)})
        export = write_lists(output, about, self.items, lists, ranker.k, progress)
        notes = [*users.notes, *item_filter.notes]
        if users.histories is not None and export.num_users == export.num_popularity_lists > 0:
            notes.append(f"nothing in the histories was seen in training; {examples(self.items)}")
        return replace(export, notes=tuple(notes))

    def _subjects(self, users: AskedUsers) -> pa.Array | pa.ChunkedArray:
        """Return the column with the user or history of each list."""
        if users.kind == "history":
            return pa.array(range(len(users)))
        if (users.user_index < len(self.users)).all():
            return self.users.table.column("id").take(users.user_index)
        return id_array(cast("Sequence[Id]", users.ids))

    def read_rules(
        self,
        rules_file: Path | str | None = None,
        items: object = None,
        files: PairsConfig | None = None,
    ) -> None:
        """Read the rules of a file, by name; they replace those read before.

        ``rules_file`` is TOML with one SQL condition per rule, on the columns of the run's items:
        ``in-stock = "stock > 0"``. ``items`` is a file or frame with further columns, which replace
        columns of the same name; ``files`` has its format. An item that it lacks has no value in
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
        """Each user's history, catalogue items only, and an empty last row for unknown users."""
        histories = self._all_histories
        if callable(histories):
            histories = histories()
        return histories.within(self.model.num_items).padded(len(self.users) + 1)

    @cached_property
    def _known_seen(self) -> Histories | None:
        """The disliked items of each user, like `known_histories`; None without dislikes."""
        seen = self._all_seen() if callable(self._all_seen) else self._all_seen
        if seen is None:
            return None
        return seen.within(self.model.num_items).padded(len(self.users) + 1)

    def _left_out(self, users: AskedUsers, histories: Histories) -> Histories | None:
        """Return these histories with the users' disliked items; None if there are none."""
        left_out, num_items = histories, self.model.num_items
        if self._known_seen is not None:
            left_out = left_out.union(self._known_seen.rows(users.user_index))
        if users.disliked is not None:
            nobody = [True] * len(users)
            disliked, _ = known_items(users.disliked, self.items, num_items, nobody)
            left_out = left_out.union(disliked)
        return None if left_out.num_interactions == histories.num_interactions else left_out

    def _look_up(self, users: AskedUsers) -> UserHistories:
        """Return the users with their histories from the run and the given items."""
        user_index, given, num_items = users.user_index, users.histories, self.model.num_items
        if (user_index < len(self.users)).any():
            histories = self.known_histories.rows(user_index)
        else:  # with only new users, the run's histories need not be read
            histories = Histories.empty(num_users=len(user_index), num_items=num_items)
        has_items = histories.lengths() > 0
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
        return UserHistories(user_index, histories, remarks, self._left_out(users, histories))

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

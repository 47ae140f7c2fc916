"""A run in memory that answers: loaded, checked and warmed up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import to_json

from foretaste._util.documents import Json
from foretaste.data.histories import Histories
from foretaste.data.ids import Id
from foretaste.errors import UnsupportedError
from foretaste.recommend.answers import Answer
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import AskedUsers, examples, first_few
from foretaste.recommend.recommender import Recommender
from foretaste.runs.run import Run
from foretaste.serve.errors import ServiceError
from foretaste.serve.events import NO_EVENTS, EventStore
from foretaste.serve.lists import ListCache, ListWriter, WrittenList, cache_key
from foretaste.serve.schemas import (
    EventsBody,
    HistoryQuery,
    RecommendBody,
    SearchQuery,
    SimilarBody,
    User,
)

DIGEST_LENGTH = 16
"""Number of characters of a digest in answers."""

_UNSEEN_ITEM = "never seen in training, so nothing is known of what it is similar to"


class ResolvedUser(NamedTuple):
    """One user of a body: id, if any, items behind the run's history, and disliked items."""

    user_id: Id | None
    history: Sequence[Id]
    disliked: Sequence[Id]


class ResolvedRequest(NamedTuple):
    """The users of a body, and what their lists hold."""

    users: Sequence[User]
    request: ListRequest


class ServedModel:
    """A run that answers. It is immutable, so all answers of a batch have one digest."""

    def __init__(self, name: str, recommender: Recommender, digest: str) -> None:
        self.name = name
        self.recommender = recommender
        self.digest = digest
        self.loaded_at = datetime.now(UTC)
        self._writer = ListWriter(recommender.items)
        self._cache = ListCache()

    @classmethod
    def load(cls, name: str, run: Run, device: str) -> ServedModel:
        """Load a run and warm it up; RunError if its weights do not belong to it."""
        recommender = Recommender.open(run, device)
        # Mult-VAE's output layer, 9 MB of weights, took 0.7 of the 2.4 ms of four users that are
        # scored together, and takes 0.45 ms in this layout.
        recommender.model.optimize_for_small_batches()
        digest = run.loaded_digest
        assert digest is not None
        served = cls(name, recommender, digest[:DIGEST_LENGTH])
        served.warm()
        return served

    def with_rules(self, rules_file: Path | None, items: str | Path | None) -> ServedModel:
        """Return a copy of this run with the rules and columns of items now in these files."""
        served, served.recommender = copy(self), copy(self.recommender)
        served.recommender.read_rules(rules_file, items)
        # The cached lists were made with the old rules.
        served._cache = ListCache()
        return served

    def is_of(self, run: Run) -> bool:
        """Return True if a run has the same weights, ids, titles and histories."""
        own = self.recommender.run
        is_same = own is not None and own.config == run.config
        return is_same and run.open_weights().digest.startswith(self.digest)

    def describe(self) -> dict[str, Json]:
        """Return the fields of its `ModelInfo`."""
        run = self.recommender.run
        assert run is not None
        return {
            "name": self.name,
            "digest": self.digest,
            "kind": run.config.model,
            "num_users": len(run.users),
            "num_items": run.num_items,
            "rules": self.recommender.item_rules.names,
            "loaded_at": self.loaded_at.isoformat(timespec="seconds"),
        }

    def look_up(self, body: RecommendBody) -> ResolvedRequest:
        """Return the users and the request of a body; ServiceError if this run lacks its rules or
        columns, or has ids of another type."""
        self.check_types(body)
        request = body.request()
        if missing := self.recommender.item_rules.missing(request):
            field, message = missing
            raise ServiceError(422, "invalid", message, field)
        return ResolvedRequest(body.users, request)

    def recommend(
        self, bodies: Sequence[ResolvedRequest], events: EventStore | None = None
    ) -> list[tuple[bytes, list[WrittenList]] | ServiceError]:
        """Return the response to each body, with its lists; all bodies are scored together.

        Histories are the users' items in the run, then those in ``events``, then those given. If
        the events cannot be read, bodies with user ids get that ServiceError in place of a
        response.
        """
        named = [
            {user.kept_id for user in body.users if user.kept_id is not None} for body in bodies
        ]
        everyone = set[str]().union(*named)
        try:
            further = events.events_of(everyone) if events is not None and everyone else {}
        except ServiceError as error:
            nameless = [body for body, ids in zip(bodies, named, strict=True) if not ids]
            answered = iter(self.recommend(nameless) if nameless else ())
            return [error if ids else next(answered) for ids in named]
        asked = []
        for body in bodies:
            mine = [further.get(user.kept_id or "", NO_EVENTS) for user in body.users]
            asked.append(
                [
                    ResolvedUser(user.user_id, [*own.items, *user.history], own.disliked)
                    for user, own in zip(body.users, mine, strict=True)
                ]
            )
        head = to_json({"model": self.name, "digest": self.digest})[:-1]
        return [
            (b'%b,"answers":[%b]}' % (head, b",".join(one.content for one in lists)), lists)
            for lists in self.lists([body.request for body in bodies], asked)
        ]

    def lists(
        self,
        requests: Sequence[ListRequest],
        asked: Sequence[Sequence[ResolvedUser]],
    ) -> list[list[WrittenList]]:
        """Return the lists of the users of each request, from the cache or scored together."""
        keys = [
            [cache_key(request, *user) for user in users]
            for request, users in zip(requests, asked, strict=True)
        ]
        cached = [[self._cache.get(key) for key in each] for each in keys]
        waiting = [
            [user for user, one in zip(users, found, strict=True) if one is None]
            for users, found in zip(asked, cached, strict=True)
        ]
        ids = [user.user_id for users in waiting for user in users]
        # A user with an id alone gets None, not an empty history.
        histories = [
            user.history if user.history or user.user_id is None else None
            for users in waiting
            for user in users
        ]
        disliked = [user.disliked for users in waiting for user in users]
        users = AskedUsers.mixed(self.recommender.users, ids, histories, disliked)
        is_known = (users.user_index < len(self.recommender.users)).tolist()
        written, start = [], 0
        for top in self.recommender.lists_together(
            users, [*zip(map(len, waiting), requests, strict=True)]
        ):
            rows = slice(start, start + len(top.length))
            written.append(iter(self._writer.write(top, ids[rows], is_known[rows])))
            start = rows.stop
        return [
            [one or self._cache.put(key, next(lists)) for one, key in zip(found, each, strict=True)]
            for lists, found, each in zip(written, cached, keys, strict=True)
        ]

    def count_unknown(self, item_ids: Sequence[int | str]) -> int:
        """Return the number of items that training never saw."""
        return self._are_known(item_ids).count(False)

    def check_types(self, body: RecommendBody | SimilarBody | EventsBody) -> None:
        """Raise ServiceError for text that spells no integer, if the run's ids are integers.

        Integers among text ids are taken by their spelling, as in Python and in files.
        """
        # A single such id in an event would make all ids text in the next training.
        tables = {"user": self.recommender.users, "item": self.recommender.items}
        for field, kind, ids in body.ids():
            if foreign := tables[kind].of_another_type(ids):
                message = f"{first_few(foreign)} in {field}: {examples(tables[kind])}"
                raise ServiceError(422, "invalid", message, field)

    def similar(self, bodies: Sequence[SimilarBody]) -> list[bytes]:
        """Return the response to each body; UnsupportedError if the model cannot compare items."""
        responses = []
        for body in bodies:
            is_known = self._are_known(body.item_ids)
            known = [one for one, flag in zip(body.item_ids, is_known, strict=True) if flag]
            found = iter(self.recommender.similar_items(known, body.k))
            answers = []
            for item_id, flag in zip(body.item_ids, is_known, strict=True):
                answer = next(found) if flag else None
                answers.append(
                    {
                        "item_id": item_id,
                        "known": flag,
                        "items": [] if answer is None else _items(answer),
                        "reason": _UNSEEN_ITEM if answer is None else answer.reason,
                    }
                )
            responses.append(self._response(answers=answers))
        return responses

    def items(self, queries: Sequence[SearchQuery]) -> list[bytes]:
        """Return the response to each query: items with the text in id or title, case aside."""
        order, texts = self.items_by_popularity, self.searched_texts
        return [
            self._response(items=self._titled(order[_has_text(texts, query)[order]][: query.k]))
            for query in queries
        ]

    def history(
        self, queries: Sequence[HistoryQuery], events: EventStore | None = None
    ) -> list[bytes]:
        """Return the response to each query: the user's items in the run and in ``events``.

        The newest come first if the run's histories have an order, otherwise the most popular.
        """
        recommender = self.recommender
        users, items = recommender.users, recommender.items
        further = {} if events is None else events.events_of({one.user_id for one in queries})
        responses = []
        for query in queries:
            row = users.lookup([query.user_id])
            is_known = bool(row[0] >= 0)
            kept = recommender.known_histories.rows(np.where(row < 0, len(users), row))
            added = items.lookup(further.get(query.user_id, NO_EVENTS).items)
            index = self._in_order(kept, added)
            content = {
                "user_id": users.ids(row)[0] if is_known else query.user_id,
                "known": is_known,
                "num_items": len(index),
                "items": self._titled(index[: query.k]),
            }
            responses.append(self._response(**content))
        return responses

    def _in_order(self, kept: Histories, added: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the catalogue items of a history and of its added items, in the order shown."""
        if kept.position is None:
            order = self.items_by_popularity
            return order[np.isin(order, [*kept.item_index, *added])]
        known = added[(added >= 0) & (added < self.recommender.model.num_items)]
        oldest_first = [*kept.item_index[kept.oldest_first()].tolist(), *known.tolist()]
        return np.array([*dict.fromkeys(reversed(oldest_first))], dtype=np.int64)

    def _are_known(self, item_ids: Sequence[int | str]) -> list[bool]:
        """Return True for each item that training saw."""
        index = self.recommender.items.lookup(item_ids)
        flags: list[bool] = ((index >= 0) & (index < self.recommender.model.num_items)).tolist()
        return flags

    def _response(self, **content: Json) -> bytes:
        return to_json({"model": self.name, "digest": self.digest, **content})

    def _titled(self, index: NDArray[np.integer]) -> list[dict[str, Json]]:
        """Return ids and titles of items."""
        items = self.recommender.items
        ids, titles = items.ids(index), items.titles(index)
        if titles is None:
            return [{"item_id": item_id} for item_id in ids]
        return [{"item_id": one, "title": title} for one, title in zip(ids, titles, strict=True)]

    @cached_property
    def items_by_popularity(self) -> NDArray[np.int64]:
        """Items of the catalogue by their number of users in training, most first."""
        counts = self.recommender.model.item_count_I.cpu().numpy()
        # The sort is stable: items with equally many users stay in the order of the catalogue.
        return np.argsort(-counts, kind="stable")

    @cached_property
    def searched_texts(self) -> list[pa.ChunkedArray]:
        """Ids and titles of the catalogue, in the Unicode form NFC."""
        table = self.recommender.items.table.slice(0, self.recommender.model.num_items)
        names = [name for name in ("id", "title") if name in table.column_names]
        return [pc.utf8_normalize(table.column(name).cast(pa.string()), "NFC") for name in names]

    def warm(self, asked: Sequence[None] = ()) -> Sequence[None]:
        """Answer each kind of request once, so that everything lazy is computed or read now."""
        items = self.recommender.items.ids(np.arange(1))
        users = [User(user_id=one) for one in self.recommender.users.ids(np.arange(1))]
        users += [User(history=items), User(history=[])]
        bodies = RecommendBody(users=users), RecommendBody(users=users, candidates=items)
        self.recommend([*map(self.look_up, bodies)])
        self.items([SearchQuery(query="a")])
        with suppress(UnsupportedError):  # such requests are refused with this reason
            self.similar([SimilarBody(item_ids=items)])
        return asked


def _has_text(texts: Sequence[pa.ChunkedArray], query: SearchQuery) -> NDArray[np.bool_]:
    """Return True for each row with a text that contains the query's, ignoring case."""
    if not query.query:
        return np.ones(len(texts[0]), dtype=bool)
    has_text = np.zeros(len(texts[0]), dtype=bool)
    asked = normalize("NFC", query.query)
    for text in texts:
        found = pc.match_substring(text, asked, ignore_case=True)
        has_text |= np.asarray(found.fill_null(False))
    return has_text


def _items(answer: Answer) -> list[dict[str, Json]]:
    pairs = zip(answer.item_ids, answer.scores, strict=True)
    if answer.titles is None:
        return [{"item_id": item_id, "score": score} for item_id, score in pairs]
    return [
        {"item_id": item_id, "score": score, "title": title}
        for (item_id, score), title in zip(pairs, answer.titles, strict=True)
    ]

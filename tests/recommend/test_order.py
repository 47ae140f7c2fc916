"""Histories in order, through every entrance, with a model whose scores are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from foretaste.data import Dataset, prepare
from foretaste.export.formats import Inputs
from foretaste.export.parity import compare_lists
from foretaste.export.program import ListProgram
from foretaste.models.base import RecommenderModel, StateParts, UserState
from foretaste.models.config import ModelConfig
from foretaste.models.scorer import OrderedScorer
from foretaste.ops.histories import HistoryTensors
from foretaste.recommend import Recommender
from foretaste.serve.events import Event, EventStore
from foretaste.serve.models import ServedModel
from foretaste.serve.schemas import HistoryQuery, RecommendBody, User

NUM_ITEMS = 20
ANA, BEN = 1, 2
TAKEN = {ANA: [4, 9, 1, 7], BEN: [12, 3]}
"""The items of each user, oldest first; user 3 has all."""


class FollowingScorer(OrderedScorer):
    max_length = NUM_ITEMS

    def __init__(self, num_items: int) -> None:
        super().__init__()
        self.num_items = num_items

    def forward(self, item_index_BT: Tensor, length_B: Tensor) -> Tensor:
        place_BT = length_B[:, None] - torch.arange(self.max_length)
        weight_BT = torch.where(place_BT > 0, 1.0 / place_BT, 0.0)
        scores_BI = torch.zeros(len(length_B), self.num_items)
        return scores_BI.scatter_add(1, item_index_BT, weight_BT).roll(1, 1)


@dataclass(frozen=True, kw_only=True)
class FollowingConfig(ModelConfig):
    """Config of a model that lists what follows the newest item."""

    uses_order = True


class Following(RecommenderModel):
    """An item x gives 1 / (1 + places from the end) to item x + 1."""

    name = "following"
    config_class = FollowingConfig

    def _new_users(self, histories: HistoryTensors) -> StateParts:
        scores_BI = torch.zeros(len(histories), self.num_items)
        newest_first = histories.oldest_first().flip(0)
        row_N = histories.row_index()
        places = [0] * len(histories)
        for entry in newest_first.tolist():
            row, item = int(row_N[entry]), int(histories.item_index[entry])
            places[row] += 1
            scores_BI[row, (item + 1) % self.num_items] += 1 / places[row]
        return (scores_BI,)

    def history_weights(self, histories: HistoryTensors) -> Tensor:
        return 1.0 / histories.places_back()

    def similarity(self, item_index_B: Tensor, item_index_C: Tensor | None = None) -> Tensor:
        follows_II = torch.eye(self.num_items).roll(1, 1)
        others_IC = follows_II if item_index_C is None else follows_II[:, item_index_C]
        return others_IC[item_index_B]

    def scorer(self, *, known_users: bool) -> OrderedScorer:
        return FollowingScorer(self.num_items)

    def _score_catalogue(self, state: UserState) -> Tensor:
        (scores_BI,) = state.parts
        assert isinstance(scores_BI, Tensor)
        return scores_BI.clone()

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self._score_catalogue(state).gather(1, item_index_BK)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    taken = [*TAKEN.items(), (3, list(range(NUM_ITEMS)))]
    rows = [(user, item, 10 + place) for user, row in taken for place, item in enumerate(row)]
    users, items, times = zip(*rows, strict=True)
    table = pa.table({"user_id": users, "item_id": items, "timestamp": times})
    return prepare(table, tmp_path / "out", validation="none")


@pytest.fixture
def recommender(dataset: Dataset) -> Recommender:
    model = Following(FollowingConfig(), 3, dataset.manifest.num_items).eval()
    assert dataset.items.ids()[:4] == [0, 1, 2, 3]
    return Recommender(model, dataset.users, dataset.items, dataset.all_interactions())


def first(recommender: Recommender, *history: int) -> list[int | str]:
    (answer,) = recommender.recommend_for([list(history)], 3)
    return answer.item_ids


def test_the_last_of_a_list_is_the_newest(recommender: Recommender) -> None:
    assert first(recommender, 4, 9, 1) == [2, 10, 5]
    assert first(recommender, 1, 9, 4) == [5, 10, 2]
    assert first(recommender, 1, 4, 9, 1) == [2, 10, 5]  # its last place counts
    # Items that training never saw leave no gap.
    assert first(recommender, 4, 9, 777, 1, 888) == [2, 10, 5]
    scores = [recommender.score_for([row], [2]) for row in ([4, 9, 1], [4, 777, 9, 888, 1, 999])]
    assert scores[0] == scores[1]


def test_reasons_are_parts_of_the_score(recommender: Recommender) -> None:
    (answer,) = recommender.recommend_for([[4, 9, 1]], 3, reasons=True)
    assert answer.item_ids == [2, 10, 5]
    assert answer.because is not None
    found = [(one.item_id, one.score) for each in answer.because for one in each]
    assert found == [(1, 1.0), (9, 1 / 2), (4, pytest.approx(1 / 3))]


def test_a_program_takes_histories_oldest_first(recommender: Recommender) -> None:
    program = ListProgram(recommender.model, 3)
    best, scores = program(torch.tensor([4, 9, 1, 1, 9, 4]), torch.tensor([3, 3]))
    assert best.tolist() == [[2, 10, 5], [5, 10, 2]]
    assert scores[0].tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    # An item that comes twice has its last place, and its first one leaves no gap.
    best, scores = program(torch.tensor([4, 1, 9, 1, 9, 9, 1]), torch.tensor([4, 3]))
    assert best.tolist() == [[2, 10, 5], [2, 10, 0]]
    assert scores[0].tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    assert scores[1].tolist() == pytest.approx([1, 1 / 2, 0])
    histories, users = recommender.known_histories[:3], np.arange(3)

    def call(inputs: Inputs) -> Any:
        return [one.numpy() for one in program(*map(torch.from_numpy, inputs.values()))]

    parity = compare_lists(recommender.model, program, call, histories, users)
    assert parity.num_lists == parity.equal == 6
    program.scorer.max_length = 1  # a program of the newest item alone gives other lists
    assert compare_lists(recommender.model, program, call, histories, users).different


def test_a_run_answers_from_all_its_items_in_their_order(recommender: Recommender) -> None:
    ana, ben = recommender.recommend([ANA, BEN], 3)
    assert ana.item_ids == [8, 2, 10]
    assert ben.item_ids == [4, 13, 0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = EventStore(str(tmp_path / "events.db"))
    store.create()
    store.start()
    yield store
    store.close()


def event(number: int, user: int, item: int, time: float) -> Event:
    return Event(f"event {number}", str(user), str(item), time)


def test_events_stand_behind_by_time_then_by_arrival(
    recommender: Recommender, store: EventStore
) -> None:
    served = ServedModel("following", recommender, "digest")

    def answer(*users: User) -> list[list[Any]]:
        asked = served.look_up(RecommendBody(users=[*users], k=2))
        ((content, _),) = served.recommend([asked], store)
        return [
            [one["item_id"] for one in found["items"]] for found in json.loads(content)["answers"]
        ]

    def shown() -> list[Any]:
        (content,) = served.history([HistoryQuery(user_id=str(ANA))], store)
        return [one["item_id"] for one in json.loads(content)["items"]]

    ana = User(user_id=ANA)
    assert answer(ana) == [[8, 2]]
    assert shown() == [7, 1, 9, 4]
    store.add([event(1, ANA, 14, 200.0), event(2, ANA, 11, 100.0)]).result()
    assert answer(ana) == [[15, 12]]
    assert shown() == [14, 11, 7, 1, 9, 4]
    store.add([event(3, ANA, 16, 200.0)]).result()
    assert answer(ana) == [[17, 15]]  # with equal times, the later arrival is the newest
    # An item of the run's own history moves to the end if it comes again.
    store.add([event(4, ANA, 4, 300.0)]).result()
    assert answer(ana) == [[5, 17]]
    assert shown() == [4, 16, 14, 11, 7, 1, 9]
    store.add([event(5, ANA, 14, 400.0)]).result()
    assert answer(ana) == [[15, 5]]
    # Items of the request stand behind all others.
    assert answer(ana, User(user_id=ANA, history=[9])) == [[15, 5], [10, 15]]
    assert answer(User(user_id=BEN, history=[12])) == [[13, 4]]

"""Evaluation by ranks: the numbers of a single process, to the last bit."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.data.dataset import HeldOut
from foretaste.data.histories import Histories
from foretaste.distributed.collectives import ALONE, Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import ClosedFormModel, IterativeModel, RecommenderModel, UserState
from foretaste.models.registry import build_model, config_class
from foretaste.ops.histories import HistoryTensors
from tests.evaluation.worlds import random_held_out
from tests.ranks import run_ranks

SIZES = [2, 3]
CANDIDATES = ["full", "sampled-4", "nvidia-6", "fixed"]
NUM_USERS, NUM_ITEMS = 23, 29
SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {},
    "vae": {"hidden": (8,), "latent": 4},
    "ials": {"factors": 4},
    "neumf": {"factors": 4, "layers": (8, 4)},
}


def held_out_users(num_known: int, num_new: int) -> HeldOut:
    """Users of whom the first were trained on, with candidates; one knows nothing."""
    generator = np.random.default_rng(3)
    num_users = num_known + num_new
    found = random_held_out(generator, num_users=num_users, num_items=NUM_ITEMS, most_targets=4)
    known = found.history.where(found.history.row_index() != num_users // 2)
    indexes = (
        generator.choice(NUM_USERS, num_known, replace=False),
        NUM_USERS + generator.choice(9, num_new, replace=False),
    )
    drawn = generator.random((num_users, NUM_ITEMS)) < 0.2
    drawn[found.target.row_index(), found.target.item_index] = False
    candidates = Histories.from_pairs(*drawn.nonzero(), num_users=num_users, num_items=NUM_ITEMS)
    return replace(
        found,
        num_train_users=NUM_USERS,
        user_index=np.concatenate([np.sort(index) for index in indexes]).astype(np.int32),
        history=known,
        known=known,
        candidates=candidates,
    )


def measured(
    model: RecommenderModel, heldout: HeldOut, candidates: str, ranks: Ranks = ALONE
) -> dict[str, Any]:
    """All that an evaluation has but its duration."""
    seen: list[tuple[int, int]] = []
    has_new = bool((heldout.user_index >= NUM_USERS).any())
    found = evaluate(
        model,
        heldout,
        candidates=candidates,
        k=(1, 3, 10, 100),
        batch=4,
        more=True,
        history_lengths=(1, 3) if has_new else None,
        progress=lambda done, users: seen.append((done, users)),
        ranking=strategy_of(ranks).ranking,
    )
    if not has_new:  # then nothing is ranked again
        assert seen == sorted(seen)
        assert not seen or seen[-1] == (heldout.num_users, heldout.num_users)
    values = {name: value.tolist() for name, value in found.per_user.items()}
    return asdict(replace(found, elapsed_s=0.0, per_user=values, user_index=None))


def trained(name: str, train: Histories) -> RecommenderModel:
    model = build_model(name, config_class(name)(**SETTINGS[name]), NUM_USERS, NUM_ITEMS)
    histories = to_device(train, torch.device("cpu"))
    if isinstance(model, IterativeModel):
        model.reset_parameters(seed=5)
        model.count_items(histories)
        for parameter in model.parameters():
            parameter.data *= 30.0  # scores that differ
    else:
        assert isinstance(model, ClosedFormModel)
        model.fit(histories, lambda *progress: None)
    return model.eval()


def whole_models(ranks: Ranks, name: str, sizes: list[tuple[int, int]]) -> list[Any]:
    """Evaluations by these ranks, each beside that of this process alone."""
    train = random_held_out(
        np.random.default_rng(4), num_users=NUM_USERS, num_items=NUM_ITEMS, most_targets=1
    )
    model = trained(name, train.history)
    return [
        [measured(model, heldout, candidates, each) for each in (ranks, ALONE)]
        for heldout in (held_out_users(*size) for size in sizes)
        for candidates in CANDIDATES
    ]


@pytest.mark.parametrize(("name", "num_ranks"), [("ease", 2), ("neumf", 2), ("vae", 3)])
def test_ranks_with_the_whole_model_measure_what_one_does(num_ranks: int, name: str) -> None:
    sizes = [(11, 5), (1, 0), (0, 1)]
    for found in zip(*run_ranks(whole_models, num_ranks, name, sizes), strict=True):
        alone = found[0][1]
        assert alone["num_samples"] > 0
        assert found == ([alone, alone],) * num_ranks


class Table(RecommenderModel):
    """Known users are scored by their row, new ones by the last row and all that they have.

    Only the rows of ``users`` are here.
    """

    name = "table"

    def __init__(self, score_UI: Tensor, users: range | None) -> None:
        super().__init__(None, NUM_USERS, NUM_ITEMS, users)
        self.rows_UI = score_UI[self.users.start : self.users.stop]
        self.new_I = score_UI[-1]

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor]:
        users = self.users
        is_here_B = (user_index_B >= users.start) & (user_index_B < users.stop)
        score_BI = torch.zeros(len(user_index_B), NUM_ITEMS)
        score_BI[is_here_B] = self.rows_UI[user_index_B[is_here_B] - users.start]
        return (score_BI,)

    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        items_N = histories.item_index.float()
        total_B = torch.zeros(len(histories)).index_add_(0, histories.row_index(), items_N)
        return (self.new_I * (1 + total_B[:, None] % 5),)

    def _score_catalogue(self, state: UserState) -> Tensor:
        assert isinstance(state.parts[0], Tensor)
        return state.parts[0]

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return self._score_catalogue(state).gather(1, item_index_BK)


def users_of(ranks: Ranks) -> range:
    """Uneven parts; the second of three ranks has nothing."""
    bounds = {2: [0, 9, NUM_USERS], 3: [0, 9, 9, NUM_USERS]}[ranks.size]
    return range(bounds[ranks.rank], bounds[ranks.rank + 1])


def without_others(heldout: HeldOut, known: range) -> HeldOut:
    """The interactions that a rank has in training: of its users."""

    def own(histories: Histories) -> Histories:
        users = heldout.user_index[histories.row_index()]
        return histories.where((users >= NUM_USERS) | np.isin(users, known))

    return replace(heldout, history=own(heldout.history), known=own(heldout.known))


def sharded_tables(ranks: Ranks, sizes: list[tuple[int, int]]) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    score_UI = torch.randint(-3, 4, (NUM_USERS + 1, NUM_ITEMS), generator=generator).float()
    counts_I = torch.arange(NUM_ITEMS) % 4.0
    part, found = users_of(ranks), []
    for heldout in (held_out_users(*size) for size in sizes):
        for candidates in CANDIDATES:
            pair = []
            for users, each in ((part, ranks), (None, ALONE)):
                model = Table(score_UI, users)
                model.item_count_I += counts_I
                own = without_others(heldout, model.users)
                pair.append(measured(model, own, candidates, each))
            found.append(pair)
    return found


@pytest.mark.parametrize("num_ranks", SIZES)
def test_ranks_with_a_part_of_the_model_measure_what_one_does(num_ranks: int) -> None:
    sizes = [(23, 0), (9, 5), (1, 0), (0, 1)]
    for found in zip(*run_ranks(sharded_tables, num_ranks, sizes), strict=True):
        alone = found[0][1]
        assert found == ([alone, alone],) * num_ranks


def sharded_models(ranks: Ranks, name: str, sizes: list[tuple[int, int]]) -> list[Any]:
    train = random_held_out(
        np.random.default_rng(4), num_users=NUM_USERS, num_items=NUM_ITEMS, most_targets=1
    )
    whole = trained(name, train.history)
    found = []
    config = config_class(name)(**SETTINGS[name])
    part = build_model(name, config, NUM_USERS, NUM_ITEMS, users_of(ranks))
    rows = {tensor: part.rows_of(tensor) for tensor in whole.state_dict()}
    part.load_state_dict(
        {
            tensor: value if (own := rows[tensor]) is None else value[own.start : own.stop]
            for tensor, value in whole.state_dict().items()
        }
    )
    for heldout in (held_out_users(*size) for size in sizes):
        for candidates in ("full", "sampled-4", "fixed"):
            pair = [
                measured(
                    model.train().eval(), without_others(heldout, model.users), candidates, each
                )
                for model, each in ((part, ranks), (whole, ALONE))
            ]
            found.append(pair)
    return found


@pytest.mark.parametrize("num_ranks", SIZES)
def test_ranks_with_a_part_of_a_trained_model(num_ranks: int) -> None:
    found_of = run_ranks(sharded_models, num_ranks, "neumf", [(11, 5), (0, 1)])
    for found in zip(*found_of, strict=True):
        alone = found[0][1]
        assert found == ([alone, alone],) * num_ranks

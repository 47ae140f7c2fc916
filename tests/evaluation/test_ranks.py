"""Evaluation by ranks: the numbers of a single process, to the last bit."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from foretaste.data.dataset import HeldOut
from foretaste.data.histories import Histories
from foretaste.distributed.collectives import Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import ClosedFormModel, IterativeModel, RecommenderModel
from foretaste.models.registry import build_model, config_class
from tests.evaluation.worlds import random_held_out
from tests.ranks import run_ranks

NUM_USERS, NUM_ITEMS = 23, 29
SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {},
    "vae": {"hidden": (8,), "latent": 4},
    "neumf": {"factors": 4, "layers": (8, 4)},
}


def held_out_users(num_known: int, num_new: int) -> HeldOut:
    """Held-out users with candidates; training had the first ones, and one has no history."""
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
        num_train_items=NUM_ITEMS - 9,
        user_index=np.concatenate([np.sort(index) for index in indexes]).astype(np.int32),
        history=known,
        known=known,
        candidates=candidates,
    )


def measured(
    model: RecommenderModel, heldout: HeldOut, candidates: str, ranks: Ranks
) -> dict[str, Any]:
    """All of an evaluation but its duration."""
    seen: list[tuple[int, int]] = []
    has_new = bool((heldout.user_index >= NUM_USERS).any())
    found = evaluate(
        model,
        heldout,
        candidates=candidates,
        k=(1, 3, 10, 100),
        evaluation_batch=4,
        more=True,
        history_lengths=(1, 3) if has_new else None,
        progress=lambda done, users: seen.append((done, users)),
        ranking=strategy_of(ranks).ranking,
    )
    if not has_new:  # so nothing is ranked again
        assert seen == sorted(seen)
        assert not seen or seen[-1] == (found.num_users, found.num_users)
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
        for rows in map(model.get_parameter, model.item_rows):
            rows.data[1::2] = rows.data[:-1:2]  # and every other one ties with the one before
    else:
        assert isinstance(model, ClosedFormModel)
        model.fit(histories, lambda *progress: None)
    return model.eval()


def users_of(ranks: Ranks) -> range:
    """Uneven parts; the second of three ranks has nothing."""
    bounds = {2: [0, 9, NUM_USERS], 3: [0, 9, 9, NUM_USERS]}[ranks.size]
    return range(bounds[ranks.rank], bounds[ranks.rank + 1])


def without_others(heldout: HeldOut, known: range) -> HeldOut:
    """The held-out part without the interactions of trained users on other ranks."""

    def own(histories: Histories) -> Histories:
        users = heldout.user_index[histories.row_index()]
        return histories.where((users >= NUM_USERS) | np.isin(users, known))

    return replace(heldout, history=own(heldout.history), known=own(heldout.known))


def part_of(whole: RecommenderModel, name: str, users: range) -> RecommenderModel:
    part = build_model(name, config_class(name)(**SETTINGS[name]), NUM_USERS, NUM_ITEMS, users)
    rows = {tensor: part.rows_of(tensor) for tensor in whole.state_dict()}
    part.load_state_dict(
        {
            tensor: value if (own := rows[tensor]) is None else value[own.start : own.stop]
            for tensor, value in whole.state_dict().items()
        }
    )
    return part.eval()


def evaluated(ranks: Ranks, name: str, in_parts: bool) -> list[dict[str, Any]]:
    """Evaluations of all held-out parts and candidates by these ranks."""
    train = random_held_out(
        np.random.default_rng(4), num_users=NUM_USERS, num_items=NUM_ITEMS, most_targets=1
    )
    whole = trained(name, train.history)
    model = part_of(whole, name, users_of(ranks)) if in_parts else whole
    return [
        measured(model, without_others(heldout, model.users), candidates, ranks)
        for heldout in (held_out_users(*size) for size in [(23, 0), (9, 5), (1, 0), (0, 1)])
        for candidates in ["full", "sampled-4", "nvidia-6", "fixed", "new"]
        if candidates != "new" or heldout.new_targets.num_interactions
    ]


@pytest.mark.parametrize(
    ("name", "num_ranks", "in_parts"),
    [("ease", 2, False), ("neumf", 2, False), ("vae", 3, False), ("neumf", 3, True)],
)
def test_ranks_measure_what_one_does(name: str, num_ranks: int, in_parts: bool) -> None:
    (alone,) = run_ranks(evaluated, 1, name, False)
    assert all(one["num_samples"] > 0 for one in alone)
    assert run_ranks(evaluated, num_ranks, name, in_parts) == [alone] * num_ranks

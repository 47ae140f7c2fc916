"""Quality by group of users, of held-out items and of history lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.data.dataset import HeldOut
from foretaste.errors import SettingError
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.groups import with_first_items
from foretaste.evaluation.lists import ITEM_GROUPS, item_groups
from foretaste.evaluation.result import Evaluation, Group
from foretaste.models.base import UserState
from foretaste.ops.histories import HistoryTensors
from tests.evaluation.worlds import TableModel, held_out, random_held_out
from tests.messages import raises


class ByHistory(TableModel):
    """New users are scored by weights from the items of their history."""

    def _new_users(self, histories: HistoryTensors) -> tuple[HistoryTensors]:  # type: ignore[override]
        return (histories,)

    def _score_catalogue(self, state: UserState) -> Tensor:
        (part,) = state.parts
        return (
            part.to_dense() @ self.score_UI
            if isinstance(part, HistoryTensors)
            else self.score_UI[part]
        )


def measure(model: TableModel, heldout: HeldOut, **options: Any) -> Evaluation:
    return evaluate(model, heldout, **({"k": (1, 3)} | options))


def groups(found: Evaluation, by: str) -> dict[str, Group]:
    return {group.name: group for group in found.groups if group.by == by}


def test_users_by_activity() -> None:
    lengths = [1, 1, 1, 2, 3, 4, 4, 5]
    history = [list(range(length)) for length in lengths]
    heldout = held_out(history, [[6 + user % 4] for user in range(8)], num_items=10)
    found = measure(TableModel(torch.rand(8, 10)), heldout, more=True)
    # Quarters end with the 2nd, 4th and 6th user; a user with as many items joins them.
    rows = {"1 item": [0, 1, 2], "2 items": [3], "3–4 items": [4, 5, 6], "5 items": [7]}
    assert groups(found, "activity").keys() == rows.keys()
    for name, group in groups(found, "activity").items():
        assert group.num_users == len(rows[name])
        for metric in ("hr@1", "ndcg@3", "mrr@3"):
            assert group.metrics[metric].value == found.per_user[metric][rows[name]].mean()
    whole = measure(TableModel(torch.rand(4, 10)), heldout.rows(np.arange(3)), more=True)
    assert groups(whole, "activity").keys() == {"1 item"}
    assert groups(whole, "activity")["1 item"].metrics["hr@3"] == whole.metrics["hr@3"]


def test_held_out_items_by_popularity() -> None:
    """A group's values equal an evaluation with only these items held out; other items stay
    candidates."""
    generator = np.random.default_rng(3)
    heldout = random_held_out(generator, num_users=40, num_items=15, most_targets=5)
    heldout = replace(heldout, target=replace(heldout.target, num_items=16))
    model = TableModel(torch.randint(6, (40, 15)).float())
    counts = generator.integers(1, 9, 15) ** 2
    model.item_count_I += torch.from_numpy(counts)
    found = groups(measure(model, heldout, more=True), "popularity")
    assert tuple(found) == ITEM_GROUPS
    group_I = item_groups(counts.astype(float))
    for number, name in enumerate(ITEM_GROUPS):
        target = heldout.target.where(group_I[heldout.target.item_index] == number)
        alone = measure(model, replace(heldout, target=target))
        assert 0 < alone.num_users == found[name].num_users < 40
        for metric, value in found[name].metrics.items():
            assert value == alone.metrics[metric]


def new_users(generator: np.random.Generator) -> HeldOut:
    """20 users that training never saw, behind 10 that it saw."""
    heldout = random_held_out(generator, num_users=20, num_items=15, most_targets=3)
    return replace(heldout, user_index=heldout.user_index + np.int32(10), num_train_users=10)


def test_cut_histories_are_nested_and_chosen_by_seed_and_user() -> None:
    heldout = new_users(np.random.default_rng(4))
    whole = heldout.history
    before = [set[int]() for _ in range(20)]
    for length in range(1, 7):
        cut = with_first_items(heldout, length)
        assert (cut.target, cut.known) == (heldout.target, heldout.known)
        assert cut.history.lengths().tolist() == np.minimum(whole.lengths(), length).tolist()
        now = [set(cut.history[user : user + 1].item_index.tolist()) for user in range(20)]
        assert all(fewer <= more for fewer, more in zip(before, now, strict=True))
        before = now
    assert before == [set(whole[user : user + 1].item_index.tolist()) for user in range(20)]
    rows = np.array([7, 3])
    firsts = [
        with_first_items(part, 1).history.item_index
        for part in (heldout, heldout.rows(rows), replace(heldout, seed=2))
    ]
    assert firsts[1].tolist() == firsts[0][rows].tolist()
    assert firsts[2].tolist() != firsts[0].tolist()


@pytest.mark.parametrize("candidates", ["full", "sampled-4"])
def test_new_users_by_history_length(candidates: str) -> None:
    heldout = new_users(np.random.default_rng(5))
    model = ByHistory(torch.rand(15, 15))
    options = {"candidates": candidates}
    found = measure(model, heldout, history_lengths=(3, 1, 100), **options)
    by_length = groups(found, "history")
    assert list(by_length) == ["1 item", "3 items", "100 items"]
    for length, group in zip((1, 3), by_length.values(), strict=False):
        cut = measure(model, with_first_items(heldout, length), **options)
        quality = {name: metric for name, metric in cut.metrics.items() if "coverage" not in name}
        assert group.metrics == quality
        assert group.num_short == (heldout.history.lengths() < length).sum()
    assert by_length["1 item"].metrics != by_length["3 items"].metrics
    # A user with fewer items gives all of them, and none of these becomes a candidate.
    whole = by_length["100 items"]
    assert (whole.num_users, whole.num_short) == (20, 20)
    for name, metric in whole.metrics.items():
        assert metric == found.metrics[name]
    assert "(3 items: " in found.conditions()[-1]
    assert "100 items: 20)" in found.conditions()[-1]


def test_users_known_from_training_have_no_history_length() -> None:
    heldout = new_users(np.random.default_rng(6))
    model = ByHistory(torch.rand(15, 15))
    found = measure(model, replace(heldout, num_train_users=15), history_lengths=(2,))
    assert found.num_users == 20
    assert groups(found, "history")["2 items"].num_users == 15
    with raises(SettingError, "history_lengths", "leave-one-out", "held-out-users"):
        measure(model, replace(heldout, num_train_users=30), history_lengths=(2,))
    with raises(SettingError, "history_lengths", (0,)):
        measure(model, heldout, history_lengths=(0,))

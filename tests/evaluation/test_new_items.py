"""Items that training never saw: some models list them, and all are measured in one catalogue."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretaste.data.dataset import HeldOut
from foretaste.errors import DatasetError
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.result import Evaluation
from tests.evaluation.worlds import TableModel, held_out, random_held_out
from tests.messages import raises

NUM_TRAIN_ITEMS, NUM_ITEMS, NUM_ALL_ITEMS = 12, 17, 20
RULES = ["full", "sampled-4", "sampled-1000", "nvidia-5"]


def shop(num_users: int = 40) -> HeldOut:
    """Users whose targets are of all kinds: seen in training, new, and new without a feature."""
    found = random_held_out(
        np.random.default_rng(6), num_users=num_users, num_items=NUM_ALL_ITEMS, most_targets=5
    )
    history = found.history.within(NUM_ITEMS)
    shop = replace(found, num_train_items=NUM_TRAIN_ITEMS, history=history, known=history)
    # Others are answered in popularity order, by a model of training items alone.
    return shop.rows(np.flatnonzero(history.within(NUM_TRAIN_ITEMS).lengths()))


def scores(num_users: int = 40) -> torch.Tensor:
    """Scores with ties."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(9, (num_users, NUM_ITEMS), generator=generator).float()


@pytest.mark.parametrize("candidates", RULES)
def test_an_item_that_a_model_lacks_stands_behind_all_others(candidates: str) -> None:
    heldout, whole_UI = shop(), scores()
    listed = heldout.target.where(heldout.target.item_index < NUM_TRAIN_ITEMS)
    heldout = replace(heldout, target=listed)
    lacking = evaluate(
        TableModel(whole_UI[:, :NUM_TRAIN_ITEMS]), heldout, candidates=candidates, k=(1, 4, 50)
    )
    behind_UI = whole_UI.clone()
    behind_UI[:, NUM_TRAIN_ITEMS:] = -1.0
    behind = evaluate(TableModel(behind_UI), heldout, candidates=candidates, k=(1, 4, 50))
    for name, values in lacking.per_user.items():
        if not name.startswith("new_items"):
            assert values.tolist() == behind.per_user[name].tolist(), name


@pytest.mark.parametrize("candidates", RULES)
def test_a_target_that_a_model_lacks_is_a_miss(candidates: str) -> None:
    heldout, whole_UI = shop(), scores()
    lacking = evaluate(
        TableModel(whole_UI[:, :NUM_TRAIN_ITEMS]), heldout, candidates=candidates, k=(1000,)
    )
    listing = evaluate(TableModel(whole_UI), heldout, candidates=candidates, k=(1000,))
    target = heldout.target
    for found, num_items in ((lacking, NUM_TRAIN_ITEMS), (listing, NUM_ITEMS)):
        # A list of a thousand has all items that a model lists.
        share = target.within(num_items).lengths() / target.lengths()
        assert found.per_user["recall_all@1000"].tolist() == pytest.approx(share.tolist())
        assert found.num_unseen_targets == np.count_nonzero(target.item_index >= num_items)
    is_new = (target.item_index >= NUM_TRAIN_ITEMS) & (target.item_index < NUM_ITEMS)
    assert (lacking.num_new_targets, listing.num_new_targets) == (0, np.count_nonzero(is_new))
    number = listing.num_new_targets
    line = f"{number} held-out items never seen in training, listed by their features"
    assert line in listing.conditions()
    if candidates == "full":  # the note names models that differ in it
        assert f"ease: {line}" in listing.conditions("ease")
        misses = f"ials: {lacking.num_unseen_targets} held-out items never seen in training, each"
        assert f"{misses} a miss" in lacking.conditions("ials")


def test_numbers_without_new_items_do_not_move_with_the_catalogue() -> None:
    heldout, model = shop(), TableModel(scores()[:, :NUM_TRAIN_ITEMS])
    before = heldout.read_by(NUM_TRAIN_ITEMS)
    before = replace(before, known=before.known.within(NUM_TRAIN_ITEMS))
    old, new = (evaluate(model, one, k=(1, 5, 10), more=True) for one in (before, heldout))
    for name, metric in old.metrics.items():
        scale = NUM_TRAIN_ITEMS / NUM_ITEMS if name.startswith("coverage") else 1.0
        assert metric.value * scale == pytest.approx(new[name]), name
    assert old.groups == tuple(group for group in new.groups if group.name != "new")
    assert not any(name.startswith("new_items") for name in old.metrics)


def test_the_share_of_lists_with_a_new_item() -> None:
    # Items 3 and 4 are new. Lists of two: 3 0; 0 1; 1 4, as 3 is known; 2 1.
    whole_UI = torch.tensor([[4.0, 3, 2, 5, 1], [5, 4, 3, 2, 1], [0, 5, 1, 9, 4], [1, 2, 3, 0, 0]])
    heldout = held_out([[1], [2], [3], [0]], [[0], [1], [2], [1]], num_items=5, num_train_items=3)
    found = evaluate(TableModel(whole_UI), heldout, k=(1, 2, 5))
    assert found.per_user["new_items@1"].tolist() == [1, 0, 0, 0]
    assert found.per_user["new_items@2"].tolist() == [1, 0, 1, 0]
    assert found["new_items@5"] == 1
    lacking = evaluate(TableModel(whole_UI[:, :3]), heldout, k=(5,))
    assert lacking["new_items@5"] == 0
    sampled = evaluate(TableModel(whole_UI), heldout, k=(5,), candidates="sampled-2")
    assert "new_items@5" not in sampled.metrics


def test_new_items_are_ranked_among_themselves() -> None:
    # Items 3 to 6 are new, 6 has no feature. 3 and 4 are held out; 5 is new in another part.
    heldout = held_out(
        [[0], [0, 3], [1], [2]],
        [[3], [1, 4], [3, 6], [1]],
        num_items=6,
        num_train_items=3,
        num_all_items=7,
    )
    whole_UI = torch.tensor([[9.0, 9, 9, 1, 2, 9], [9, 9, 9, 8, 1, 9], [9, 9, 9, 5, 5, 9], [0] * 6])
    found = evaluate(TableModel(whole_UI), heldout, candidates="new", k=(1, 2))
    # The first stands behind 4; the second is alone, as 3 is known; the third ties, and 6 is a
    # miss; the last has no new target.
    assert found.user_index.tolist() == [0, 1, 2]
    assert found.num_users_without_target == 1
    assert found.per_user["hr@1"].tolist() == [0, 1, 0.5]
    assert found.per_user["recall_all@2"].tolist() == [1, 1, 0.5]
    assert (found.num_new_targets, found.num_unseen_targets) == (3, 1)
    assert found.num_samples == 3 * 2
    lacking = evaluate(TableModel(whole_UI[:, :3]), heldout, candidates="new", k=(2,))
    assert (lacking["hr@2"], lacking.num_unseen_targets, lacking.num_samples) == (0, 4, 0)
    seen = replace(heldout, target=heldout.target.within(3))
    with raises(DatasetError, "candidates", "new", "test", "new-items"):
        evaluate(TableModel(whole_UI), seen, candidates="new", k=(1,))


def test_new_items_are_a_group() -> None:
    heldout = shop()
    model = TableModel(scores())
    model.item_count_I[:NUM_TRAIN_ITEMS] = torch.arange(1, NUM_TRAIN_ITEMS + 1).float() ** 2
    found = evaluate(model, heldout, k=(3,), more=True)
    (group,) = (group for group in found.groups if group.name == "new")
    alone = evaluate(model, replace(heldout, target=heldout.new_targets), k=(3,))
    assert group.num_users == alone.num_users < found.num_users
    assert group.metrics["recall_all@3"] == alone.metrics["recall_all@3"]
    lacking = TableModel(scores()[:, :NUM_TRAIN_ITEMS])
    lacking.item_count_I += model.item_count_I[:NUM_TRAIN_ITEMS]
    (group,) = (
        one for one in evaluate(lacking, heldout, k=(3,), more=True).groups if one.name == "new"
    )
    assert (group.num_users, group.metrics["hr@3"].value) == (alone.num_users, 0)


def test_a_model_without_features_does_not_know_users_with_new_items_alone() -> None:
    heldout = held_out([[4], [1, 4]], [[0], [0]], num_items=5, num_train_items=3)
    heldout = replace(heldout, num_trained=np.array([0, 1]))
    lacking, listing = TableModel(torch.zeros(2, 3)), TableModel(torch.zeros(2, 5))
    assert evaluate(lacking, heldout, k=(1,)).num_users_unknown == 1
    assert evaluate(listing, heldout, k=(1,)).num_users_unknown == 0
    # A history does not grow by interactions that the model does not read.
    for num_items, is_grown in ((5, True), (3, False)):
        read = heldout.read_by(num_items).is_grown
        assert read is not None
        assert read.tolist() == [is_grown, is_grown]


def test_another_number_of_items_is_another_dataset() -> None:
    with raises(DatasetError, 11, 17):
        evaluate(TableModel(scores()[:, :11]), shop(), k=(1,))


def test_numbers_of_new_items_are_saved_as_json_only_if_there_are_some() -> None:
    whole = evaluate(TableModel(scores()), shop(), k=(20,))
    again = Evaluation.from_dict(json.loads(json.dumps(whole.as_dict())))
    assert (again.num_new_targets, again.metrics) == (whole.num_new_targets, whole.metrics)
    lacking = evaluate(TableModel(scores()[:, :NUM_TRAIN_ITEMS]), shop(), k=(20,))
    assert "num_new_targets" not in lacking.as_dict()

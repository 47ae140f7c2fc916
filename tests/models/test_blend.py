"""A blend of models; some list fewer items."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import ClosedFormModel
from foretaste.models.blend.config import BlendConfig, Member
from foretaste.models.blend.model import Blend
from foretaste.models.registry import build_model
from foretaste.models.scorer import ScorerInputs
from foretaste.ops.histories import HistoryTensors

NUM_USERS, NUM_ITEMS, NUM_OWN = 30, 12, 9
MEMBERS = {
    "0": Member(run="a", model="ease", settings={"neighbors": "all", "l2": 5.0}, weight=0.6),
    "1": Member(run="b", model="itemknn", settings={}, weight=0.4, num_items=NUM_OWN),
}


@pytest.fixture(scope="module")
def histories() -> HistoryTensors:
    """The first two users have only new items, which one model does not know."""
    generator = np.random.default_rng(3)
    drawn = generator.random((NUM_USERS, NUM_ITEMS)) < 0.3
    drawn[:2, :NUM_OWN], drawn[2:, 0] = False, True
    drawn[:2, NUM_OWN:] = True
    pairs = Histories.from_pairs(*drawn.nonzero(), num_users=NUM_USERS, num_items=NUM_ITEMS)
    return to_device(pairs, torch.device("cpu"))


@pytest.fixture(scope="module")
def blend(histories: HistoryTensors) -> Blend:
    blend = Blend(BlendConfig(members=MEMBERS), NUM_USERS, NUM_ITEMS)
    models = []
    for member in MEMBERS.values():
        own = histories.within(member.num_items or NUM_ITEMS)
        model = build_model(member.model, member.model_config(), NUM_USERS, own.num_items)
        assert isinstance(model, ClosedFormModel)
        model.fit(own, lambda *progress: None)
        models.append(model.eval())
    blend.compose(models)
    blend.fit(histories, lambda *progress: None)
    return blend.eval()


def expected_scores(blend: Blend, histories: HistoryTensors) -> Tensor:
    """Each model in standard deviations of its own items; for the others its lowest score. The
    second model adds nothing for the first two users because it does not know them."""
    total = torch.zeros(len(histories), NUM_ITEMS)
    for model, member in zip(blend.members, MEMBERS.values(), strict=True):
        assert isinstance(model, ClosedFormModel)
        own = model.score_catalogue(model.fold_in(histories.within(model.num_items)))
        own = (own - own.mean(1, keepdim=True)) / own.std(1, correction=0, keepdim=True)
        lowest = own.amin(1, keepdim=True).expand(-1, NUM_ITEMS - model.num_items)
        if model.num_items < NUM_ITEMS:
            own[:2], lowest = 0.0, lowest.index_fill(0, torch.arange(2), 0.0)
        total += member.weight * torch.cat((own, lowest), dim=1)
    return total


def test_an_item_that_a_model_lacks_gets_its_lowest_score(
    blend: Blend, histories: HistoryTensors
) -> None:
    expected = expected_scores(blend, histories)
    users = torch.arange(NUM_USERS)
    for state in (blend.fold_in(histories), blend.user_state(users, histories)):
        torch.testing.assert_close(blend.score_catalogue(state), expected, rtol=1e-4, atol=1e-4)
        items = torch.arange(NUM_ITEMS).flip(0).expand(NUM_USERS, -1)
        found = blend.score_candidates(state[5:], items[5:])
        torch.testing.assert_close(found, expected.flip(1)[5:], rtol=1e-4, atol=1e-4)


def test_a_program_gives_the_same_scores(blend: Blend, histories: HistoryTensors) -> None:
    users = ScorerInputs(histories.item_index.long(), histories.lengths(), None, NUM_ITEMS)
    found = blend.scorer(known_users=False).scores(users)
    torch.testing.assert_close(found, expected_scores(blend, histories), rtol=1e-4, atol=1e-4)


def test_users_unknown_to_all_models_get_popularity_order(
    blend: Blend, histories: HistoryTensors
) -> None:
    of_few = Blend(BlendConfig(members={"0": MEMBERS["1"]}), NUM_USERS, NUM_ITEMS)
    of_few.compose([blend.members[1]])  # type: ignore[list-item]
    of_few.fit(histories, lambda *progress: None)
    state = of_few.eval().fold_in(histories)
    assert state.has_history_B.tolist() == [False, False] + [True] * (NUM_USERS - 2)
    assert torch.equal(of_few.score_catalogue(state)[0], of_few.item_count_I)


def test_similar_items_of_and_towards_what_one_model_lacks(blend: Blend) -> None:
    found = blend.similarity(torch.tensor([0, NUM_OWN]))
    assert found.shape == (2, NUM_ITEMS)
    ease = blend.members[0]
    assert isinstance(ease, ClosedFormModel)
    of_ease = ease.similarity(torch.tensor([0, NUM_OWN]))
    assert (found[0, NUM_OWN:] > -torch.inf).tolist() == (of_ease[0, NUM_OWN:] > 0).tolist()
    assert (found[1] > -torch.inf).tolist() == (of_ease[1] > 0).tolist()


def test_a_blend_uses_features_if_a_model_with_a_weight_does() -> None:
    assert not BlendConfig(members=MEMBERS | {"0": MEMBERS["1"]}).uses_features

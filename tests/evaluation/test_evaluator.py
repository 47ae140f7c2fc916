import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretaste.data.dataset import HeldOut
from foretaste.errors import DatasetError, SettingError, TrainingError, UnsupportedError
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import RecommenderModel
from foretaste.models.popularity.config import PopularityConfig
from foretaste.models.popularity.model import Popularity
from tests.evaluation.worlds import TableModel, held_out, random_held_out
from tests.messages import raises

RULES = ["full", "sampled-3", "sampled-1000", "nvidia-5"]


def measure(model: RecommenderModel, heldout: HeldOut, **options: Any) -> Evaluation:
    return evaluate(model, heldout, **({"k": (1, 3, 10)} | options))


def values(evaluation: Evaluation) -> dict[str, float]:
    return {name: metric.value for name, metric in evaluation.metrics.items()}


def test_one_target_worked_by_hand() -> None:
    scores = torch.tensor([[5.0, 4, 3, 2, 1], [1, 2, 3, 4, 5], [0, 0, 0, 9, 0]])
    # User 0 knows item 0: target 2 comes second. User 1's target comes first.
    # User 2's target ties with items 1 and 2 behind item 3: it is in the first 3 of 4 2 in 3 times.
    heldout = held_out([[0], [0], [0]], [[2], [4], [4]], num_items=5)
    found = measure(TableModel(scores), heldout, k=[3, 1])
    per_user = found.per_user
    assert per_user["hr@1"].tolist() == [0, 1, 0]
    assert per_user["hr@3"] == pytest.approx([1, 1, 2 / 3])
    assert per_user["mrr@3"] == pytest.approx([1 / 2, 1, (1 / 2 + 1 / 3) / 3])
    second, third = 1 / math.log2(3), 1 / 2
    assert per_user["ndcg@3"] == pytest.approx([second, 1, (second + third) / 3])
    assert found["hr@3"] == pytest.approx((1 + 1 + 2 / 3) / 3)
    # Lists of one: item 1 for user 0, item 4 for user 1, item 3 for user 2.
    assert found["coverage@1"] == pytest.approx(3 / 5)
    # Lists of three: 1 2 3, 4 3 2, and 3 1 2: equal scores by item number.
    assert found["coverage@3"] == pytest.approx(4 / 5)
    assert (found.num_users, found.num_users_without_target, found.num_unseen_targets) == (3, 0, 0)
    assert found.user_index.tolist() == [0, 1, 2]


@pytest.mark.parametrize("candidates", ["full", "sampled-6", "nvidia-6"])
def test_a_constant_scorer_scores_what_chance_scores(candidates: str) -> None:
    num_users, num_items = 400, 9
    heldout = held_out(
        [[user % 9, (user + 1) % 9] for user in range(num_users)],
        [[(user + 4) % 9] for user in range(num_users)],
        num_items=num_items,
    )
    found = measure(TableModel(torch.zeros(num_users, num_items)), heldout, candidates=candidates)
    if candidates != "nvidia-6":
        assert found["hr@1"] == pytest.approx(1 / 7)
        assert found["hr@3"] == pytest.approx(3 / 7)
        assert found["mrr@3"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 7)
        assert found["hr@10"] == 1
    else:
        # Six draws from six items leave 6 (1 - (5/6)^6) = 4 distinct ones on average.
        assert 1 / 7 < found["hr@1"] < 1 / 3


@pytest.mark.parametrize("candidates", RULES)
def test_the_perfect_order_scores_one(candidates: str) -> None:
    generator = np.random.default_rng(1)
    heldout = random_held_out(generator, num_users=30, num_items=20, most_targets=12)
    scores = torch.rand(30, 20)
    scores[heldout.target.row_index(), heldout.target.item_index] += 1
    found = values(measure(TableModel(scores), heldout, candidates=candidates))
    perfect = {name for name in found if name.split("@")[0] in {"hr", "ndcg", "recall", "mrr"}}
    assert len(perfect) == 12
    assert {name: found[name] for name in perfect} == pytest.approx(dict.fromkeys(perfect, 1.0))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_levels=st.sampled_from([1, 3, 180]))
def test_values_are_shares_and_do_not_depend_on_the_names_of_items(
    seed: int, num_levels: int
) -> None:
    generator = np.random.default_rng(seed)
    heldout = random_held_out(generator, num_users=12, num_items=15, most_targets=4)
    scores = (generator.permutation(180) % num_levels).reshape(12, 15).astype(np.float32)
    new_name = generator.permutation(15)
    renamed = held_out(
        [new_name[heldout.history[u : u + 1].item_index].tolist() for u in range(12)],
        [new_name[heldout.target[u : u + 1].item_index].tolist() for u in range(12)],
        num_items=15,
    )
    new_scores = np.empty_like(scores)
    new_scores[:, new_name] = scores
    found = measure(TableModel(torch.tensor(scores)), heldout)
    again = measure(TableModel(torch.tensor(new_scores)), renamed)
    for name, metric in found.metrics.items():
        assert 0 <= metric.value <= 1
        if not name.startswith("coverage") or num_levels == 180:
            assert metric.value == pytest.approx(again[name], abs=1e-12)


def test_no_list_is_made_if_no_metric_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    heldout = random_held_out(generator, num_users=12, num_items=15, most_targets=4)
    model = TableModel(torch.randint(9, (12, 15)).float())
    whole = evaluate(model, heldout, k=(2, 5))
    monkeypatch.delattr("foretaste.evaluation.evaluator.top_k")
    found = evaluate(model, heldout, k=(2, 5), coverage=False)
    assert not any(name.startswith("coverage") for name in found.metrics)
    assert found.metrics.items() < whole.metrics.items()


@pytest.mark.parametrize("candidates", RULES)
def test_batches_of_any_size_give_the_same(candidates: str, limit: Callable[..., None]) -> None:
    generator = np.random.default_rng(2)
    heldout = random_held_out(generator, num_users=53, num_items=25, most_targets=5)
    model = TableModel(torch.randint(6, (53, 25)).float())
    heard: list[tuple[int, int]] = []
    together = measure(model, heldout, candidates=candidates)
    for scores_at_once in (1, 300):
        limit(score_bytes=4 * scores_at_once, candidate_scores=scores_at_once)
        heard.clear()
        apart = measure(
            model, heldout, candidates=candidates, progress=lambda *done: heard.append(done)
        )
        assert values(apart) == values(together)
        assert heard[-1] == (53, 53)
    assert len(heard) > 1


def test_validation_targets_are_no_candidates_of_the_test() -> None:
    scores = torch.tensor([[9.0, 8, 7, 0]])
    with_known = held_out([[0]], [[2]], known=[[0, 1]], num_items=4)
    assert measure(TableModel(scores), with_known)["hr@1"] == 1
    without = held_out([[0]], [[2]], num_items=4)
    assert measure(TableModel(scores), without)["hr@1"] == 0


def test_users_and_targets_left_out_are_counted() -> None:
    heldout = held_out(
        [[0], [1], [2], [3]], [[1], [], [5, 4], [0, 5]], num_items=5, num_all_items=6
    )
    found = measure(TableModel(torch.zeros(4, 5)), heldout, candidates="sampled-4")
    assert found.num_users == 3
    assert found.num_users_without_target == 1
    assert found.num_unseen_targets == 2
    assert found.num_short_candidate_lists == 3
    assert found.user_index.tolist() == [0, 2, 3]
    assert found["recall_all@10"] == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)


@pytest.mark.parametrize(
    ("candidates", "num_samples"),
    [
        ("full", 3 * 5),
        ("sampled-2", 4 + 3 * 2),
        ("sampled-4", 4 + 2 + 3 + 3),
        ("sampled-1000000", 4 + 2 + 3 + 3),
        ("nvidia-7", 4 + 3 * 7),
    ],
)
def test_samples_are_pairs_of_a_user_and_a_candidate(candidates: str, num_samples: int) -> None:
    """The three users with a target have 4 that can be ranked, and 2, 3 and 3 items to draw from;
    batches do not matter."""
    heldout = held_out(
        [[0], [1], [2], [3]], [[1, 2], [], [4], [0, 5]], num_items=5, num_all_items=6
    )
    model = TableModel(torch.zeros(4, 5))
    assert measure(model, heldout, candidates=candidates).num_samples == num_samples
    assert (
        measure(model, heldout, candidates=candidates, evaluation_batch=1).num_samples
        == num_samples
    )


def test_users_whose_targets_are_all_unseen_are_misses() -> None:
    heldout = held_out([[0], [1]], [[3], [4]], num_items=3, num_all_items=5)
    for candidates in RULES:
        found = measure(TableModel(torch.zeros(2, 3)), heldout, candidates=candidates)
        assert found["hr@10"] == found["ndcg@10"] == 0
        assert found.num_users == found.num_unseen_targets == 2


def test_users_unseen_in_training_are_folded_in() -> None:
    # Users 1 and 2 were trained on; 3 and 4 were not and get the last row of scores.
    scores = torch.tensor([[0.0, 0, 9], [0, 9, 0], [9, 0, 0], [0, 0, 9]])
    model = TableModel(scores, num_users=3)
    history, target = [[2], [2], [0], [0]], [[1], [0], [2], [1]]
    heldout = held_out(history, target, num_items=3, first_user=1, num_train_users=3)
    assert measure(model, heldout).per_user["hr@1"].tolist() == [1, 1, 1, 0]
    assert model.num_folded_in == 2


def test_a_subset_of_users_gives_their_values() -> None:
    heldout = random_held_out(np.random.default_rng(4), num_users=30, num_items=15, most_targets=3)
    model = TableModel(torch.rand(30, 15))
    everyone = measure(model, heldout, candidates="sampled-5")
    rows = np.array([3, 17, 29])
    some = measure(model, heldout.rows(rows), candidates="sampled-5")
    assert some.user_index.tolist() == rows.tolist()
    assert some.per_user["ndcg@3"].tolist() == everyone.per_user["ndcg@3"][rows].tolist()


@pytest.mark.parametrize(("bad", "candidates"), [(math.nan, "full"), (-math.inf, "sampled-3")])
def test_scores_that_cannot_be_ranked_are_refused(bad: float, candidates: str) -> None:
    scores = torch.zeros(2, 5)
    scores[1, 2] = bad
    heldout = held_out([[0], [0]], [[1], [2]], num_items=5)
    with raises(TrainingError, "table", bad):
        measure(TableModel(scores), heldout, candidates=candidates)


def test_mistakes_are_named() -> None:
    model = TableModel(torch.zeros(1, 3))
    heldout = held_out([[0]], [[1]], num_items=3)
    with raises(SettingError, "candidates", "sampled-0", "sampled-99"):
        measure(model, heldout, candidates="sampled-0")
    with raises(SettingError, "k", "(0, 10)"):
        measure(model, heldout, k=(0, 10))
    with raises(DatasetError, 3, 4):
        measure(model, held_out([[0]], [[1]], num_items=4))
    with raises(DatasetError, "test part"):
        measure(model, held_out([[0]], [[]], num_items=3))


def test_evaluation_leaves_the_model_unchanged() -> None:
    model = TableModel(torch.zeros(1, 3))
    heldout = held_out([[0]], [[1]], num_items=3)
    before = torch.backends.cuda.matmul.fp32_precision
    for mode in (True, False):
        model.train(mode)
        measure(model, heldout)
        assert model.training is mode
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_popularity_is_ranked_from_what_training_users_have() -> None:
    train = [[0, 1, 2], [0, 1], [0], [3]]
    model = Popularity(PopularityConfig(), 4, 5)
    heldout = held_out(train, [[3], [2], [2], [1]], num_items=5)
    model.fit(to_device(heldout.history, torch.device("cpu")), lambda *progress: None)
    # Counts 3 2 1 1 0. Among the items that each user lacks, user 1's target ties for first with
    # item 3, user 2's ties for second with it, user 3's is second.
    found = measure(model, heldout, k=(1, 2)).per_user
    assert found["hr@1"] == pytest.approx([1, 1 / 2, 0, 0])
    assert found["hr@2"] == pytest.approx([1, 1, 1 / 2, 1])


def test_devices_agree(device: torch.device) -> None:
    heldout = random_held_out(np.random.default_rng(5), num_users=40, num_items=30, most_targets=4)
    scores = torch.randint(8, (40, 30)).float()
    for candidates in RULES:
        here = measure(TableModel(scores), heldout, candidates=candidates)
        there = measure(TableModel(scores).to(device), heldout, candidates=candidates)
        assert values(here) == values(there)


def test_users_ranked_at_once_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    heldout = random_held_out(np.random.default_rng(8), num_users=10, num_items=40, most_targets=3)
    model = TableModel(torch.zeros(10, 40))
    monkeypatch.setattr("foretaste.evaluation.ranking.free_on", lambda device: 4 * 40 * 12)
    measure(model, heldout, evaluation_batch=4)
    with raises(UnsupportedError, 40, 10, "evaluation_batch"):
        measure(model, heldout, evaluation_batch=10**18)

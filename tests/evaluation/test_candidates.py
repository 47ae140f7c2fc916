from collections import Counter
from math import comb, sqrt

import numpy as np
import pytest
import torch

from foretaste.evaluation.candidates import (
    candidates_key,
    choose_users,
    distinct_ranks,
    draw_negatives,
    repeats,
)
from foretaste.evaluation.config import CandidateRule
from foretaste.evaluation.ranking import to_device
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import hash_words
from tests.evaluation.worlds import histories

SAMPLED = CandidateRule.parse("sampled-6")
NVIDIA = CandidateRule.parse("nvidia-6")


def excluded_items(rows: list[list[int]], num_items: int) -> HistoryTensors:
    return to_device(histories(rows, num_items), torch.device("cpu"))


def surprise(counts: Counter[tuple[int, ...]], num_outcomes: int) -> float:
    """Standard deviations of the chi-square statistic above its mean, for equal chances."""
    expected = counts.total() / num_outcomes
    missing = num_outcomes - len(counts)
    statistic = sum((n - expected) ** 2 / expected for n in counts.values()) + missing * expected
    return (statistic - (num_outcomes - 1)) / sqrt(2 * (num_outcomes - 1))


@pytest.mark.parametrize(("num_draws", "bound"), [(1, 7), (3, 7), (6, 7), (4, 8)])
def test_every_set_of_distinct_ranks_is_equally_likely(num_draws: int, bound: int) -> None:
    num_users = 30_000
    word_BN = hash_words(5, torch.arange(num_users * num_draws)).view(num_users, num_draws)
    rank_BN, holds_BN = distinct_ranks(word_BN, torch.full((num_users,), bound))
    assert holds_BN.all()
    drawn = Counter(tuple(sorted(row)) for row in rank_BN.tolist())
    assert all(len(set(ranks)) == num_draws for ranks in drawn)
    assert surprise(drawn, comb(bound, num_draws)) < 4


def test_distinct_ranks_stay_distinct_if_nearly_all_are_drawn() -> None:
    word_BN = hash_words(9, torch.arange(200 * 500)).view(200, 500)
    bound_B = torch.arange(400, 600)
    rank_BN, holds_BN = distinct_ranks(word_BN, bound_B)
    assert holds_BN.sum(1).tolist() == bound_B.clamp(max=500).tolist()
    for ranks, holds, bound in zip(rank_BN, holds_BN, bound_B.tolist(), strict=True):
        drawn = ranks[holds].tolist()
        assert len(set(drawn)) == min(bound, 500)
        assert 0 <= min(drawn) <= max(drawn) < bound


@pytest.mark.parametrize("rule", [SAMPLED, NVIDIA], ids=["sampled", "nvidia"])
def test_negatives_are_uniform_outside_the_excluded_items(rule: CandidateRule) -> None:
    num_users = 20_000
    excluded = excluded_items([[0, 3, 4, 11]] * num_users, 12)
    item_BN, counts_BN, is_short_B = draw_negatives(rule, excluded, torch.arange(num_users), 1)
    drawn = Counter((item,) for item in item_BN[counts_BN].tolist())
    assert set(drawn) == {(item,) for item in (1, 2, 5, 6, 7, 8, 9, 10)}
    assert surprise(drawn, 8) < 4
    assert int(is_short_B.sum()) == 0


def test_repeated_draws_of_nvidia_count_once() -> None:
    excluded = excluded_items([[0]] * 50, 6)
    item_BN, counts_BN, is_short_B = draw_negatives(NVIDIA, excluded, torch.arange(50), 1)
    assert int(is_short_B.sum()) == 50
    for items, counts in zip(item_BN, counts_BN, strict=True):
        kept = items[counts].tolist()
        assert len(set(kept)) == len(kept)
    assert not counts_BN.all()
    assert repeats(torch.tensor([[3, 1, 3, 3, 1, 2]])).tolist() == [
        [False, False, True, True, True, False]
    ]


@pytest.mark.parametrize("rule", [SAMPLED, NVIDIA], ids=["sampled", "nvidia"])
def test_users_with_few_or_no_items_left(rule: CandidateRule) -> None:
    excluded = excluded_items([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 4, 6], [], [3]], 7)
    item_BN, counts_BN, is_short_B = draw_negatives(rule, excluded, torch.arange(4), 1)
    assert int(is_short_B.sum()) == 2
    assert not counts_BN[0].any()
    assert set(item_BN[1][counts_BN[1]].tolist()) <= {3, 5}
    if rule is SAMPLED:
        assert counts_BN.sum(1).tolist() == [0, 2, 6, 6]
        assert sorted(item_BN[1][counts_BN[1]].tolist()) == [3, 5]
        assert sorted(item_BN[3].tolist()) == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("rule", [SAMPLED, NVIDIA], ids=["sampled", "nvidia"])
def test_draws_depend_on_seed_and_user_alone(rule: CandidateRule) -> None:
    rows = [[user % 7, 7 + user % 5] for user in range(40)]
    user_index = torch.arange(100, 140)
    together, _, _ = draw_negatives(rule, excluded_items(rows, 30), user_index, 1)
    apart = [
        draw_negatives(rule, excluded_items([rows[row]], 30), user_index[row : row + 1], 1)[0]
        for row in reversed(range(40))
    ]
    assert torch.equal(together, torch.cat(apart[::-1]))
    other_seed, _, _ = draw_negatives(rule, excluded_items(rows, 30), user_index, 2)
    assert not torch.equal(together, other_seed)


def test_chosen_users_are_few_spread_and_keyed() -> None:
    users = np.arange(1000, 3000)
    chosen = choose_users(users, 100, seed=1)
    assert len(chosen) == len(set(chosen.tolist())) == 100
    assert chosen.tolist() == sorted(chosen.tolist())
    assert 700 < chosen.mean() < 1300
    assert chosen.tolist() == choose_users(users, 100, seed=1).tolist()
    assert chosen.tolist() != choose_users(users, 100, seed=2).tolist()
    order = np.random.default_rng(0).permutation(2000)
    assert set(users[order][choose_users(users[order], 100, seed=1)]) == set(users[chosen])
    assert choose_users(users, 5000, seed=1).tolist() == list(range(2000))


def test_validation_and_test_draw_their_own_negatives() -> None:
    assert candidates_key(3, "validation") != candidates_key(3, "test")
    assert candidates_key(3, "test") != candidates_key(4, "test")

"""The verdict of a gate, against SciPy and against the definition of the loss that can be seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from foretaste.evaluation import gate
from foretaste.evaluation.gate import FEWEST_USERS, SEED_NOISE, judge, student_t
from tests.messages import says


def hits(num_users: int, share: float = 0.4, seed: int = 0) -> np.ndarray:
    """Values of users; a share of the users has a hit at a random place."""
    rng = np.random.default_rng(seed)
    found = 1 / np.log2(1 + rng.integers(1, 11, num_users))
    return np.where(rng.random(num_users) < share, found, 0.0)


@pytest.mark.parametrize("freedom", [19, 20, 25, 50, 166, 10_000])
def test_the_quantile_equals_students_t(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(stdtrit(freedom, 0.975), abs=2e-5)


@pytest.mark.parametrize("num_users", [20, 60, 700])
def test_the_interval_equals_a_paired_t_test(num_users: int) -> None:
    rng = np.random.default_rng(num_users)
    first = hits(num_users)
    second = first + rng.normal(-0.02, 0.1, num_users)
    found = judge("ndcg@100", first, second)
    gain = second - first
    half = stdtrit(num_users - 1, 0.975) * gain.std(ddof=1) / math.sqrt(num_users)
    ends = (gain.mean() - half, gain.mean() + half)
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-6)
    assert (found.first, found.second) == (first.mean(), second.mean())
    assert found.num_users == num_users


def test_a_difference_is_refused_by_students_t_and_not_by_the_normal_distribution() -> None:
    """With 20 users an interval of 1.96 standard errors would lie below zero."""
    first, spread = hits(20, share=1.0), np.resize([1.0, -1.0], 20)
    error = spread.std(ddof=1) / math.sqrt(20)
    for errors, outcome in ((2.03, "not seen"), (2.15, "worse")):
        second = first + 0.1 * (spread - errors * error)
        found = judge("ndcg@100", first, second)
        assert found.outcome == outcome
        assert found.second - found.first < -1.96 * 0.1 * error


@pytest.mark.parametrize("loss", [0.0, 0.5, 1.0])
def test_fewer_than_twenty_users_decide_nothing(loss: float) -> None:
    first = hits(FEWEST_USERS, share=1.0)
    assert judge("ndcg@100", first[1:], (1 - loss) * first[1:]).outcome == "too few"
    assert judge("ndcg@100", first, (1 - loss) * first).outcome != "too few"
    assert judge("ndcg@100", first[:1], first[:1]).outcome == "too few"


@pytest.mark.parametrize("num_users", [100, 3000])
def test_equal_lists_do_not_claim_to_see_everything(num_users: int) -> None:
    """The smallest visible loss x equals 2.8 standard errors with twice the variance of lost
    hits."""
    values = hits(num_users)
    found = judge("ndcg@100", values, values)
    assert (found.low, found.high) == (0, 0)
    mean, square = values.mean(), (values**2).mean()
    losses = np.arange(1, 100_000) / 100_000
    error = np.sqrt(2 * (losses * square - losses**2 * mean**2) / num_users)
    assert found.loss_seen == pytest.approx(losses[losses * mean >= 2.8 * error][0], abs=2e-5)
    assert found.outcome == ("not seen" if num_users == 100 else "passed")


def test_a_wide_spread_of_the_night_counts_in_place_of_the_least() -> None:
    values = hits(1000)
    spread = np.resize([0.3, -0.3], 1000)
    found = judge("ndcg@100", values, values + spread)
    error = spread.std(ddof=1) / math.sqrt(1000)
    assert found.loss_seen == pytest.approx(2.8 * error / values.mean())


@pytest.mark.parametrize(("num_users", "share"), [(400, 0.4), (2000, 0.2)])
def test_the_loss_that_can_be_seen_is_refused_in_four_cases_of_five(
    num_users: int, share: float
) -> None:
    """Some users get the lists of other users. A third of that loss is not refused."""
    rng, refused = np.random.default_rng(1), []
    for seed in range(500):
        values = hits(num_users, share, seed)
        loss = judge("ndcg@100", values, values).loss_seen
        for part in (1.0, 0.3):
            # Other lists have a third of the value, so half as many users again have them.
            others = hits(num_users, share / 3, seed + 10_000)
            worse = np.where(rng.random(num_users) < 1.5 * part * loss, others, values)
            refused.append(judge("ndcg@100", values, worse).outcome == "worse")
    assert 0.8 <= np.mean(refused[::2]) <= 0.95
    assert np.mean(refused[1::2]) < 0.5


def test_a_model_that_found_nothing_shows_no_loss() -> None:
    found = judge("ndcg@100", np.zeros(500), np.zeros(500))
    assert (found.outcome, found.loss_seen) == ("not seen", math.inf)
    says(found.seen())
    assert judge("ndcg@100", np.zeros(500), hits(500)).outcome == "not seen"


def test_models_with_a_seed_may_differ_by_its_noise() -> None:
    values = hits(5000)
    for share, outcomes in ((0.5, ("worse", "passed")), (1.5, ("worse", "worse"))):
        second = values * (1 - share * SEED_NOISE)
        # The spread of a constant share is small, so the interval is narrow.
        found = [judge("ndcg@100", values, second, has_seed=has_seed).outcome
                 for has_seed in (False, True)]  # fmt: skip
        assert tuple(found) == outcomes
    seen = judge("ndcg@100", values, values).loss_seen
    assert judge("ndcg@100", values, values, has_seed=True).loss_seen > seen + SEED_NOISE / 2


def test_the_numbers_are_printed() -> None:
    values = hits(1234)
    found = judge("ndcg@100", values, 0.99 * values)
    mean = values.mean()
    means = (f"{0.99 * mean:.4f}", f"{mean:.4f}")
    interval = (f"{-0.01 * mean:+.4f}", f"{found.low:+.4f}", f"{found.high:+.4f}")
    says(found.numbers(), "ndcg@100", *means, *interval, "1,234")
    says(found.seen(), f"{found.loss_seen:.0%}")
    assert gate.SEED_NOISE > 0

"""Collectives between ranks, each on two and three."""

from __future__ import annotations

import time

import pytest
import torch

from foretaste.distributed.collectives import Ranks
from foretaste.errors import RankError, SettingError
from tests.ranks import run_ranks

SIZES = [1, 2, 3]


def sums(ranks: Ranks) -> tuple[list[float], list[float]]:
    small, large = torch.full((3,), ranks.rank + 0.5), torch.ones(300_000)
    ranks.sum_(small, large)
    return small.tolist(), large.unique().tolist()


@pytest.mark.parametrize("size", SIZES)
def test_sums_cover_all_ranks(size: int) -> None:
    expected = sum(rank + 0.5 for rank in range(size))
    assert run_ranks(sums, size) == [([expected] * 3, [float(size)])] * size


def gathered(ranks: Ranks) -> tuple[list[int], list[int]]:
    own = torch.arange(ranks.rank) + 10 * ranks.rank
    whole = torch.cat(ranks.gather(own)).tolist()
    parts = list(ranks.send_to_first(own))
    return whole, torch.cat(parts).tolist() if parts else []


@pytest.mark.parametrize("size", SIZES)
def test_parts_of_any_length_are_gathered_in_order(size: int) -> None:
    expected = [10 * rank + n for rank in range(size) for n in range(rank)]
    wholes, firsts = zip(*run_ranks(gathered, size), strict=True)
    assert list(wholes) == [expected] * size
    assert list(firsts) == [expected] + [[]] * (size - 1)


def decisions(ranks: Ranks) -> tuple[object, range]:
    return ranks.broadcast({"rank": ranks.rank, "text": "é"}), ranks.part_of(5)


@pytest.mark.parametrize("size", SIZES)
def test_a_decision_of_one_rank_reaches_all(size: int) -> None:
    found = run_ranks(decisions, size)
    assert [agreed for agreed, _ in found] == [{"rank": 0, "text": "é"}] * size
    assert [n for _, part in found for n in part] == list(range(5))


def action_of_first(ranks: Ranks, mistake: str) -> object:
    def act() -> int:
        assert ranks.is_first
        if mistake:
            raise SettingError(mistake)
        return 7

    try:
        return ranks.run_on_first(act)
    except (RankError, SettingError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("size", SIZES)
def test_the_first_acts_for_all(size: int) -> None:
    assert run_ranks(action_of_first, size, "") == [7] * size
    failed = ["SettingError: no"] + ["RankError: rank 0: no"] * (size - 1)
    assert run_ranks(action_of_first, size, "no") == failed


def fail_on_one(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise ValueError("here")


def hang_on_one(ranks: Ranks) -> None:
    if ranks.rank == 1:
        time.sleep(60)


def test_a_failure_of_one_rank_is_raised_here_and_the_next_call_works() -> None:
    with pytest.raises(ValueError, match="here") as caught:
        run_ranks(fail_on_one, 2)
    assert "on rank 1 of 2" in "".join(caught.value.__notes__)
    # With the stacks of all.
    with pytest.raises(TimeoutError, match=r"(?s)ranks \[1\] of 2.* in _serve.* in hang_on_one"):
        run_ranks(hang_on_one, 2, timeout_s=0.5)
    assert len(run_ranks(sums, 2)) == 2

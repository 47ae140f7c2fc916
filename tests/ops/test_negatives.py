"""Negatives: exactly the items a user does not have, each as likely as the next."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given

from foretaste.ops import negatives
from foretaste.ops.negatives import Complement, sample_items, sample_negatives
from tests.ops.cases import excess_chi_square, histories_of, item_sets, random_histories

BY_ITEM = pytest.mark.parametrize("by_item", [False, True])


def missing(row: set[int], num_items: int) -> list[int]:
    return [item for item in range(num_items) if item not in row]


@given(item_sets())
def test_select_finds_every_missing_item_in_order(case: tuple[list[set[int]], int]) -> None:
    rows, num_items = case
    complement = Complement.of(histories_of(rows, num_items))
    absent = [missing(row, num_items) for row in rows]
    assert complement.sizes().tolist() == [len(items) for items in absent]
    for row, items in enumerate(absent):
        found = complement.select(torch.tensor(row), torch.arange(len(items)))
        assert found.tolist() == items


@BY_ITEM
def test_sampled_negatives_are_never_positive(
    rng: np.random.Generator, device: torch.device, by_item: bool
) -> None:
    histories = random_histories(rng, 60, 45, device=device)
    row_index_N = histories.row_index()
    drawn = sample_negatives(Complement.of(histories), row_index_N, 7, key=3, by_item=by_item)
    assert drawn.shape == (len(row_index_N), 7)
    assert drawn.dtype == torch.int32
    assert drawn.min() >= 0
    assert drawn.max() < 45
    positive = histories.to_dense().bool()[row_index_N[:, None], drawn.long()]
    has_everything = histories.lengths() == 45
    assert not positive[~has_everything[row_index_N]].any()


@BY_ITEM
def test_sampled_negatives_are_uniform_over_what_is_missing(by_item: bool) -> None:
    rows: list[set[int]] = [set(range(0, 40, 2)), {0, 1, 2, 37, 38, 39}, set(), {17}]
    complement = Complement.of(histories_of(rows, 40))
    row_index_N = torch.arange(4).repeat_interleave(20_000)
    drawn = sample_negatives(complement, row_index_N, 2, key=5, by_item=by_item).view(4, -1)
    for row, items in enumerate(rows):
        counts = drawn[row].bincount(minlength=40).numpy()
        assert counts[sorted(items)].sum() == 0
        assert abs(excess_chi_square(counts[missing(items, 40)])) < 4.0


@BY_ITEM
def test_a_user_with_every_item_gets_an_item_that_exists(by_item: bool) -> None:
    complement = Complement.of(histories_of([{0, 1, 2}, {1}, {0, 1, 2}], 3))
    drawn = sample_negatives(complement, torch.tensor([0, 0, 1, 2]), 6, key=1, by_item=by_item)
    assert drawn[[0, 1, 3]].eq(2).all()
    assert set(drawn[2].tolist()) <= {0, 2}
    assert complement.sizes().tolist() == [0, 2, 0]


@BY_ITEM
@pytest.mark.parametrize("at_once", [1, 64])
def test_draws_do_not_depend_on_chunks(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, at_once: int, by_item: bool
) -> None:
    histories = random_histories(rng, 20, 33)
    complement, row_index_N = Complement.of(histories), histories.row_index()
    draw = partial(sample_negatives, complement, row_index_N, 3, key=9, by_item=by_item)
    whole = draw()
    items = sample_items(33, row_index_N, 3, key=9)
    monkeypatch.setattr(negatives, "_DRAWS_AT_ONCE", {"cpu": at_once})
    assert torch.equal(draw(), whole)
    assert torch.equal(sample_items(33, row_index_N, 3, key=9), items)


@BY_ITEM
def test_draws_are_the_same_on_every_device(
    device: torch.device, by_item: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU too, in the way of a device that is not to be waited for."""
    drawn = []
    for place in (torch.device("cpu"), device):
        histories = random_histories(np.random.default_rng(1), 20, 33, device=place)
        row_index_N = histories.row_index()
        arguments = Complement.of(histories), row_index_N, 40
        drawn.append(sample_negatives(*arguments, key=9, by_item=by_item).cpu())
        monkeypatch.setitem(negatives._WAITS, "cpu", True)
    assert torch.equal(*drawn)


def test_draws_do_not_depend_on_shares(rng: np.random.Generator) -> None:
    """A rank that draws rows 50 on, counted from 50, draws what one process would."""
    histories = random_histories(rng, 20, 33)
    complement, row_index_N = Complement.of(histories), histories.row_index()
    whole = sample_negatives(complement, row_index_N, 3, key=9)
    number_N = torch.arange(50, len(row_index_N))
    part = sample_negatives(complement, row_index_N[50:], 3, 9, number_N)
    assert torch.equal(part, whole[50:])
    items = sample_items(33, row_index_N, 3, key=9)
    assert torch.equal(sample_items(33, row_index_N[50:], 3, 9, number_N), items[50:])


@given(item_sets())
def test_items_are_found_by_marks_as_by_a_search(case: tuple[list[set[int]], int]) -> None:
    rows, num_items = case
    complement = Complement.of(histories_of(rows, num_items))
    row_B = torch.arange(len(rows)).repeat_interleave(2).flip(0)
    item_BI = torch.arange(num_items).expand(len(row_B), -1).contiguous()
    expected = [[item in rows[row] for item in range(num_items)] for row in row_B]
    for most in (1000, 0):
        with mock.patch.object(negatives, "ITEMS_PER_DRAW", most):
            assert complement.has(row_B, item_BI).tolist() == expected

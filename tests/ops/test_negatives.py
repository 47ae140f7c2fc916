"""Negatives: exactly the items a user does not have, each as likely as the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given

from foretaste.ops.negatives import Complement, sample_items, sample_negatives
from tests.ops.cases import excess_chi_square, histories_of, item_sets, random_histories


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


def test_sampled_negatives_are_uniform_over_what_is_missing() -> None:
    rows: list[set[int]] = [set(range(0, 40, 2)), {0, 1, 2, 37, 38, 39}, set(), {17}]
    complement = Complement.of(histories_of(rows, 40))
    row_index_N = torch.arange(4).repeat_interleave(20_000)
    drawn = sample_negatives(complement, row_index_N, 2, key=5).view(4, -1)
    for row, items in enumerate(rows):
        counts = drawn[row].bincount(minlength=40).numpy()
        assert counts[sorted(items)].sum() == 0
        assert abs(excess_chi_square(counts[missing(items, 40)])) < 4.0


def test_a_user_with_every_item_gets_an_item_that_exists() -> None:
    complement = Complement.of(histories_of([{0, 1, 2}, {1}, {0, 1, 2}], 3))
    drawn = sample_negatives(complement, torch.tensor([0, 0, 1, 2]), 6, key=1)
    assert drawn[[0, 1, 3]].eq(2).all()
    assert set(drawn[2].tolist()) <= {0, 2}
    assert complement.sizes().tolist() == [0, 2, 0]


@pytest.mark.parametrize("at_once", [1, 64])
def test_draws_do_not_depend_on_chunks(
    limit: Callable[..., None], rng: np.random.Generator, at_once: int
) -> None:
    histories = random_histories(rng, 20, 33)
    complement, row_index_N = Complement.of(histories), histories.row_index()
    draw = partial(sample_negatives, complement, row_index_N, 3, key=9)
    whole = draw()
    items = sample_items(33, row_index_N, 3, key=9)
    limit(draws=at_once)
    assert torch.equal(draw(), whole)
    assert torch.equal(sample_items(33, row_index_N, 3, key=9), items)


def test_draws_are_the_same_on_every_device(device: torch.device) -> None:
    drawn = []
    for place in (torch.device("cpu"), device):
        histories = random_histories(np.random.default_rng(1), 20, 33, device=place)
        arguments = Complement.of(histories), histories.row_index(), 40
        drawn.append(sample_negatives(*arguments, key=9).cpu())
    assert torch.equal(*drawn)


def test_draws_do_not_depend_on_shares(rng: np.random.Generator) -> None:
    """A rank that draws the rows from 50, counted from 50, draws the same as one process."""
    histories = random_histories(rng, 20, 33)
    complement, row_index_N = Complement.of(histories), histories.row_index()
    whole = sample_negatives(complement, row_index_N, 3, key=9)
    number_N = torch.arange(50, len(row_index_N))
    part = sample_negatives(complement, row_index_N[50:], 3, 9, number_N)
    assert torch.equal(part, whole[50:])
    items = sample_items(33, row_index_N, 3, key=9)
    assert torch.equal(sample_items(33, row_index_N[50:], 3, 9, number_N), items[50:])

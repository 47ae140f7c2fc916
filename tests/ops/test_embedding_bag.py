"""The encoder of sparse histories against dense rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from foretaste.ops import segments
from foretaste.ops.buffers import Buffers
from foretaste.ops.embedding_bag import Implementation, encode, encode_dense
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import from_row, hash_words
from tests.ops.cases import histories_of, random_histories

NUM_ITEMS = 31


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    """A dozen users; the first has no item, the last every item."""
    return random_histories(rng, 12, NUM_ITEMS)


@pytest.fixture
def table(generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(NUM_ITEMS, 5, generator=generator, dtype=torch.float64)
    return values.requires_grad_()


@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.3])
def test_encode_is_the_dense_product(
    histories: HistoryTensors, table: torch.Tensor, dropout: float, generator: torch.Generator
) -> None:
    found = encode(table, histories, dropout=dropout, key=4)
    expected = encode_dense(table, histories, dropout=dropout, key=4)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(found, table, upstream),
        torch.autograd.grad(expected, table, upstream),
    )


def test_gradients_in_memory_that_is_kept(
    histories: HistoryTensors,
    table: torch.Tensor,
    generator: torch.Generator,
    limit: Callable[..., None],
) -> None:
    limit(sum_bytes=80)
    kept = Buffers()
    upstream = torch.randn(len(histories), 5, generator=generator, dtype=torch.float64)
    expected = encode(table, histories, dropout=0.5, key=4, implementation="reference")
    (expected_gradient,) = torch.autograd.grad(expected, table, upstream)
    for _ in range(2):
        found = encode(table, histories, dropout=0.5, key=4, buffers=kept)
        (gradient,) = torch.autograd.grad(found, table, upstream)
        torch.testing.assert_close(gradient, expected_gradient)


def test_rows_are_normalised(histories: HistoryTensors, table: torch.Tensor) -> None:
    dense_BI = torch.nn.functional.normalize(histories.to_dense().double())
    torch.testing.assert_close(encode(table, histories), dense_BI @ table, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.5, 0.2, 0.999])
def test_an_entry_is_dropped_by_its_word(dropout: float) -> None:
    rows = [{0, 4, 7}, set(), {1, 2, 3, 4, 5, 6, 7, 8, 9}]
    encoded = encode(torch.eye(NUM_ITEMS), histories_of(rows, NUM_ITEMS), dropout=dropout, key=9)
    threshold = round(dropout * 65536)
    expected = torch.zeros(len(rows), NUM_ITEMS)
    for row, items in enumerate(rows):
        for entry, item in enumerate(sorted(items)):
            word = int(hash_words(9, torch.tensor([(row << 32) + entry // 4])).item())
            if (word >> (16 * (entry % 4))) & 0xFFFF >= threshold:
                expected[row, item] = len(items) ** -0.5 / (1 - threshold / 65536)
    torch.testing.assert_close(encoded, expected)


@pytest.mark.parametrize("implementation", ["reference", "chunked"])
def test_rows_encode_on_their_own_as_among_others(
    histories: HistoryTensors, table: torch.Tensor, implementation: Implementation
) -> None:
    settings = {"dropout": 0.5, "implementation": implementation}
    key = torch.tensor(4)
    whole = encode(table, histories, key=key, **settings)
    for rows in (slice(0, 1), slice(1, 5), slice(5, 12)):
        found = encode(table, histories[rows], key=from_row(key, rows.start), **settings)
        torch.testing.assert_close(found, whole[rows])


@pytest.mark.parametrize("num_threads", [1, 2])
def test_bags_of_rows_without_a_width_are_empty(num_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        bags = segments.sum_bags(torch.zeros(4, 0), torch.arange(4), torch.tensor([0, 1, 4]))
    finally:
        torch.set_num_threads(before)
    assert bags.shape == (2, 0)

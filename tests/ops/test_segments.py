"""Sums of rows by index against `index_add_`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretaste.ops import segments
from foretaste.ops.buffers import Buffers
from foretaste.ops.segments import Segments, gather


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 4))
def test_sums_equal_index_add(index: list[int], width: int) -> None:
    index_S = torch.tensor(index, dtype=torch.int32)
    rows_SD = torch.from_numpy(np.random.default_rng(len(index)).normal(size=(len(index), width)))
    expected = torch.zeros(10, width, dtype=torch.float64).index_add_(0, index_S, rows_SD)
    segments = Segments(index_S, 10)
    torch.testing.assert_close(segments.sum(rows_SD), expected)
    torch.testing.assert_close(segments.sum(2.0 * rows_SD), 2.0 * expected)


@pytest.mark.parametrize("bytes_at_once", [1, 8 * 3 * 9, 8 * 3 * 10])
def test_a_large_result_is_made_in_tiles(
    bytes_at_once: int, generator: torch.Generator, limit: Callable[..., None]
) -> None:
    limit(sum_bytes=bytes_at_once)
    index_S = torch.randint(10, (50,), generator=generator)
    rows_ND = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    row_index_S = torch.randint(7, (50,), generator=generator)
    expected = torch.zeros(10, 3, dtype=torch.float64).index_add_(0, index_S, rows_ND[row_index_S])
    kept = Buffers()
    for _ in range(2):
        found = Segments(index_S, 10).sum(rows_ND, row_index_S, buffers=kept)
        torch.testing.assert_close(found, expected)
    assert bool(kept._storages) == (bytes_at_once < 8 * 3 * 10)


@pytest.mark.parametrize(
    ("num_segments", "num_rows"), [(50, 0), (1 << 15, 3000), (1 << 20, segments._FEW)]
)
def test_rows_beyond_the_last_segment_are_in_no_sum(
    num_segments: int, num_rows: int, generator: torch.Generator
) -> None:
    dtype = torch.float32
    rows_SD = torch.randint(4, (num_rows, 8), generator=generator).to(dtype)
    weight_S = torch.randint(4, (num_rows,), generator=generator).to(dtype)
    index_S = torch.randint(num_segments - 40, num_segments + 9, (num_rows,), generator=generator)
    is_in_S = index_S < num_segments
    found = Segments(index_S, num_segments)
    for factor_S in (None, weight_S):
        summands_SD = rows_SD if factor_S is None else rows_SD * factor_S[:, None]
        expected = torch.zeros(num_segments, 8, dtype=torch.float64)
        expected.index_add_(0, index_S[is_in_S], summands_SD[is_in_S].double())
        assert torch.equal(found.sum(rows_SD, weight_S=factor_S), expected.to(dtype))


@pytest.mark.parametrize(
    ("num_segments", "num_rows"),
    [(1, 0), ((1 << 15) - 1, 3000), (1 << 15, 3000), (1 << 20, segments._FEW)],
)
def test_the_order_equals_a_stable_sort(
    num_segments: int, num_rows: int, generator: torch.Generator
) -> None:
    index_S = torch.randint(num_segments, (num_rows,), generator=generator)
    sorted_S, order_S = index_S.sort(stable=True)
    assert torch.equal(segments.stable_order(index_S, num_segments), order_S)
    found = Segments(index_S, num_segments)
    assert torch.equal(found.order_S, order_S)
    bounds = torch.arange(num_segments + 1)
    assert torch.equal(found.offsets, torch.searchsorted(sorted_S, bounds))


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_half_precision_rows_are_added_up_in_float32(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    """Only the result is rounded: once, and not once for each of a thousand rows."""
    rows_SD = torch.rand(4000, 8, generator=generator).to(dtype)
    index_S = torch.randint(4, (4000,), generator=generator)
    exact = torch.zeros(4, 8, dtype=torch.float64).index_add_(0, index_S, rows_SD.double())
    found = Segments(index_S, 4).sum(rows_SD)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(dtype).eps, atol=0.0)


def test_rows_and_gradients_equal_indexing(generator: torch.Generator) -> None:
    index_B = torch.randint(0, 7, (40,), generator=generator, dtype=torch.int32)
    tables = [
        torch.randn(9, width, generator=generator, dtype=torch.float64, requires_grad=True)
        for width in (3, 5, 0)
    ]
    weights = [
        torch.randn(40, width, generator=generator, dtype=torch.float64) for width in (3, 5, 0)
    ]
    found = gather(index_B, *tables)
    expected = [table[index_B.long()] for table in tables]
    assert all(torch.equal(rows, same) for rows, same in zip(found, expected, strict=True))
    for rows_of_tables in (found, expected):
        for table in tables:
            table.grad = None
        sum(
            (rows * weight).sum() for rows, weight in zip(rows_of_tables, weights, strict=True)
        ).backward()
        gradients = [table.grad for table in tables]
        if rows_of_tables is found:
            ours = gradients
    for gradient, plain in zip(ours, gradients, strict=True):
        assert gradient is not None
        torch.testing.assert_close(gradient, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_gathered_rows_have_the_gradients_of_many(
    dtype: torch.dtype, generator: torch.Generator, limit: Callable[..., None]
) -> None:
    index_B = torch.randint(20, (200,), generator=generator).int()
    upstream = torch.randn(200, 3, generator=generator), torch.randn(200, 5, generator=generator)
    found = []
    for few in (0, 200):
        limit(few_summands=few)
        tables = torch.zeros(20, 3), torch.zeros(20, 5, dtype=dtype)
        rows = gather(index_B, *(table.requires_grad_() for table in tables))
        torch.autograd.backward(rows, [upstream[0], upstream[1].to(dtype)])
        found.append([table.grad for table in tables])
    torch.testing.assert_close(found[0], found[1], rtol=0.0, atol=0.0)

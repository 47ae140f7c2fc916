"""Sums of rows by index against `index_add_`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretaste.ops import segments
from foretaste.ops.buffers import Buffers
from foretaste.ops.segments import Segments


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 4))
def test_sums_are_those_of_index_add(index: list[int], width: int) -> None:
    index_S = torch.tensor(index, dtype=torch.int32)
    rows_SD = torch.from_numpy(np.random.default_rng(len(index)).normal(size=(len(index), width)))
    expected = torch.zeros(10, width, dtype=torch.float64).index_add_(0, index_S, rows_SD)
    segments = Segments(index_S, 10)
    torch.testing.assert_close(segments.sum(rows_SD), expected)
    torch.testing.assert_close(segments.sum(2.0 * rows_SD), 2.0 * expected)


@pytest.mark.parametrize("bytes_at_once", [1, 100, 8 * 3 * 9, 8 * 3 * 10])
def test_a_large_result_is_made_in_tiles(
    bytes_at_once: int, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_BYTES_AT_ONCE", bytes_at_once)
    index_S = torch.randint(10, (50,), generator=generator)
    rows_ND = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    row_index_S = torch.randint(7, (50,), generator=generator)
    expected = torch.zeros(10, 3, dtype=torch.float64).index_add_(0, index_S, rows_ND[row_index_S])
    kept = Buffers()
    for _ in range(2):
        found = Segments(index_S, 10).sum(rows_ND, row_index_S, buffers=kept)
        torch.testing.assert_close(found, expected)
    assert bool(kept._storages) == (bytes_at_once < 8 * 3 * 10)


def test_rows_without_width_sum_to_rows_without_width() -> None:
    assert Segments(torch.tensor([1, 0, 1]), 5).sum(torch.zeros(3, 0)).shape == (5, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
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


def test_equal_sums_are_equal_to_the_bit(generator: torch.Generator) -> None:
    rows_SD = torch.randn(3000, 16, generator=generator)
    index_S = torch.randint(50, (3000,), generator=generator)
    sums = [Segments(index_S, 50).sum(rows_SD) for _ in range(3)]
    assert torch.equal(sums[0], sums[1])
    assert torch.equal(sums[0], sums[2])

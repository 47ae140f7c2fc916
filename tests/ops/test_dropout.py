"""Dropout masks: their rate, their definition, and that chunks do not matter."""

from __future__ import annotations

import math

import pytest
import torch

from foretaste.ops.dropout import LayerMasks, drop_threshold, keep_mask, keep_rate
from foretaste.ops.random import from_row, hash_words

CPU = torch.device("cpu")


def test_nothing_is_dropped_at_rate_zero_and_never_everything() -> None:
    assert keep_mask(1, 300, 16, 0.0, CPU).all()
    assert drop_threshold(0.9999) == 255
    assert keep_rate(0.9999) == 1 / 256
    assert keep_mask(1, 300, 16, 0.9999, CPU).any()


def test_a_decision_is_one_byte_of_the_words() -> None:
    width, rate, key = 11, 0.3, -17
    mask = keep_mask(key, 6, width, rate, CPU)
    for sample in range(6):
        for column in range(width):
            counter = torch.tensor([(sample << 32) + column // 8])
            word = hash_words(key, counter).item() & ((1 << 64) - 1)
            byte = (word >> (8 * (column % 8))) & 0xFF
            assert bool(mask[sample, column]) == (byte >= drop_threshold(rate))


def test_streams_rows_and_columns_are_independent() -> None:
    one, other = (keep_mask(key, 2000, 32, 0.5, CPU) for key in (1, 2))
    for pair in ((one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1])):
        agreement = (pair[0] == pair[1]).double().mean().item()
        assert abs(agreement - 0.5) < 4 * 0.5 / math.sqrt(pair[0].numel())


@pytest.mark.parametrize(("dtype", "rate"), [(torch.float32, 0.25), (torch.bfloat16, 0.9999)])
def test_masks_of_several_layers_at_once_equal_each_layers_mask(
    dtype: torch.dtype, rate: float, device: torch.device
) -> None:
    keys, widths = [3, -4, 5], [16, 9, 1]
    masks = LayerMasks(torch.tensor(keys, device=device), widths, rate, 6, dtype)
    for first, size in [(0, 6), (6, 6), (1_000_000, 4)]:
        for key, width, drawn in zip(keys, widths, masks.draw(first, size), strict=True):
            activation = torch.rand(size, width, device=device).to(dtype) + 1
            stream = from_row(torch.tensor(key, device=device), first)
            keep = keep_mask(stream, size, width, rate, device)
            expected = torch.where(keep, activation, 0.0)
            assert torch.equal(masks.drop_(activation, drawn), expected)
            assert torch.equal(activation, expected)

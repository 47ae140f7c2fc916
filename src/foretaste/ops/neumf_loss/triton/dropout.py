"""Dropout decisions within kernels: bit for bit those of `foretaste.ops.dropout.keep_mask`."""

from __future__ import annotations

import triton.language as tl

from foretaste.ops.random import Purpose
from foretaste.ops.triton.random import GOLDEN, hash_words, mix
from foretaste.ops.triton.support import kernel

_MASK_64 = tl.constexpr((1 << 64) - 1)
_PURPOSE = tl.constexpr(int(Purpose.DROPOUT))


@kernel
def layer_key(key: tl.tensor, LAYER: tl.constexpr) -> tl.tensor:
    """As `foretaste.ops.neumf_loss.inputs.layer_keys`, of a uint64 step key."""
    PURPOSE_STEP: tl.constexpr = ((_PURPOSE + 1) * GOLDEN) & _MASK_64
    LAYER_STEP: tl.constexpr = ((LAYER + 1) * GOLDEN) & _MASK_64
    return mix(mix(key + PURPOSE_STEP) + LAYER_STEP)


@kernel
def keep(
    key: tl.tensor,
    sample_S: tl.tensor,
    FIRST: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    THRESHOLD: tl.constexpr,
) -> tl.tensor:
    """Which activations stay of ``COLUMNS`` columns from ``FIRST`` on, both multiples of eight.

    Of a layer ``WIDTH`` wide; bool [S, COLUMNS]. A word is hashed once for its eight columns.
    """
    NUM_WORDS: tl.constexpr = (WIDTH + 7) // 8
    word_W = (tl.arange(0, COLUMNS // 8) + FIRST // 8).to(tl.uint64)
    counter_SW = sample_S.to(tl.uint64)[:, None] * NUM_WORDS + word_W[None, :]
    word_SW = hash_words(key, counter_SW)
    shift_8 = 8 * tl.arange(0, 8).to(tl.uint64)
    byte_SW8 = (word_SW[:, :, None] >> shift_8[None, None, :]).to(tl.uint8)
    return tl.reshape(byte_SW8, (sample_S.shape[0], COLUMNS)) >= THRESHOLD

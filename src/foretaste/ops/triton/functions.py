"""Functions for kernels to call: rows of tables, random words, dropout.

Shape suffixes: S rows or samples, C columns, W the padded width of a vector or words of a row.
"""

from __future__ import annotations

import triton.language as tl

from foretaste.ops.random import Purpose
from foretaste.ops.triton.support import kernel

# A kernel may read a module's globals only if they are `tl.constexpr`.
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)
_MASK_64 = tl.constexpr((1 << 64) - 1)
_PURPOSE = tl.constexpr(int(Purpose.DROPOUT))


@kernel
def load_vector(pointer: tl.tensor, WIDTH: tl.constexpr, PADDED: tl.constexpr) -> tl.tensor:
    """Return ``PADDED`` numbers of a vector, float32; zeros beyond its ``WIDTH``."""
    column_W = tl.arange(0, PADDED)
    return tl.load(pointer + column_W, mask=column_W < WIDTH, other=0.0).to(tl.float32)


@kernel
def load_rows(
    pointer: tl.tensor,
    row_S: tl.tensor,
    valid_S: tl.tensor,
    first: tl.tensor,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> tl.tensor:
    """Return float32 columns of a table's rows [rows, WIDTH] from ``first``; zeros if not valid."""
    column_C = tl.arange(0, COLUMNS) + first
    # In int64: positions in a table of 2**31 numbers and more overflow int32.
    position_SC = row_S.to(tl.int64)[:, None] * WIDTH + column_C[None, :]
    mask_SC = valid_S[:, None] & (column_C < WIDTH)[None, :]
    return tl.load(pointer + position_SC, mask=mask_SC, other=0.0).to(tl.float32)


@kernel
def store_rows(
    pointer: tl.tensor,
    row_S: tl.tensor,
    valid_S: tl.tensor,
    rows_SC: tl.tensor,
    FIRST: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write columns of the valid rows of a table [rows, WIDTH], in the table's dtype."""
    column_C = tl.arange(0, rows_SC.shape[1]) + FIRST
    position_SC = row_S.to(tl.int64)[:, None] * WIDTH + column_C[None, :]
    mask_SC = valid_S[:, None] & (column_C < WIDTH)[None, :]
    tl.store(pointer + position_SC, rows_SC.to(pointer.dtype.element_ty), mask=mask_SC)


@kernel
def hash_words(key: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """Bit for bit `foretaste.ops.random.hash_words`, of uint64."""
    return _mix(counter * _GOLDEN + key)


@kernel
def _mix(word: tl.tensor) -> tl.tensor:
    """Apply SplitMix64's finaliser to uint64."""
    word = (word ^ (word >> 30)) * _MIX_1
    word = (word ^ (word >> 27)) * _MIX_2
    return word ^ (word >> 31)


@kernel
def layer_key(key: tl.tensor, LAYER: tl.constexpr) -> tl.tensor:
    """Bit for bit `layer_keys` of `foretaste.ops.neumf_loss.inputs` for first sample 0; uint64."""
    PURPOSE_STEP: tl.constexpr = ((_PURPOSE + 1) * _GOLDEN) & _MASK_64
    LAYER_STEP: tl.constexpr = ((LAYER + 1) * _GOLDEN) & _MASK_64
    return _mix(_mix(key + PURPOSE_STEP) + LAYER_STEP)


@kernel
def keep_mask(
    key: tl.tensor,
    sample_S: tl.tensor,
    FIRST: tl.constexpr,
    COLUMNS: tl.constexpr,
    THRESHOLD: tl.constexpr,
) -> tl.tensor:
    """Return the bits of `foretaste.ops.dropout.keep_mask`, for ``COLUMNS`` columns from ``FIRST``.

    Both are multiples of eight; bool [S, COLUMNS].
    """
    # a word is hashed once for its eight columns
    word_W = (tl.arange(0, COLUMNS // 8) + FIRST // 8).to(tl.uint64)
    first_S = (sample_S.to(tl.uint64) << 32) * _GOLDEN + key
    word_SW = _mix(first_S[:, None] + (word_W * _GOLDEN)[None, :])
    shift_8 = 8 * tl.arange(0, 8).to(tl.uint64)
    # [S, W, 8] read row by row is [S, 8 W]: column c is byte c % 8 of word c // 8.
    byte_SW8 = (word_SW[:, :, None] >> shift_8[None, None, :]).to(tl.uint8)
    return tl.reshape(byte_SW8, (sample_S.shape[0], COLUMNS)) >= THRESHOLD

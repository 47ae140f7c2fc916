"""Reading and writing rows of tables within kernels.

Shape suffixes: S rows, C columns, W the padded width of a vector.
"""

from __future__ import annotations

import triton.language as tl

from foretaste.ops.triton.support import kernel


@kernel
def load_vector(
    pointer: tl.tensor, WIDTH: tl.constexpr, PADDED: tl.constexpr, first: tl.tensor = 0
) -> tl.tensor:
    """``PADDED`` numbers from ``first`` on of a vector, float32; zeros beyond its ``WIDTH``."""
    column_W = tl.arange(0, PADDED) + first
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
    """Columns of rows of a table [rows, WIDTH] from ``first`` on, float32; zeros if not valid."""
    column_C = tl.arange(0, COLUMNS) + first
    place_SC = row_S.to(tl.int64)[:, None] * WIDTH + column_C[None, :]
    mask_SC = valid_S[:, None] & (column_C < WIDTH)[None, :]
    return tl.load(pointer + place_SC, mask=mask_SC, other=0.0).to(tl.float32)


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
    place_SC = row_S.to(tl.int64)[:, None] * WIDTH + column_C[None, :]
    mask_SC = valid_S[:, None] & (column_C < WIDTH)[None, :]
    tl.store(pointer + place_SC, rows_SC.to(pointer.dtype.element_ty), mask=mask_SC)

"""What training and inference do alike with a tile of samples: gather both sides of its pairs.

Shape suffixes: B rows, I items, S samples of a tile, C columns of a chunk, F padded factors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from foretaste.ops.neumf_loss.triton import tower
from foretaste.ops.triton.rows import load_rows
from foretaste.ops.triton.support import kernel


class Tables(NamedTuple):
    """What is gathered."""

    user_product_BF: Any
    item_product_IF: Any
    user_tower_BH: Any
    item_tower_IH: Any


class Weights(NamedTuple):
    """What all samples share; the scale of dropout is within ``hidden`` and ``output_tower_D``."""

    output_product_F: Any
    output_tower_D: Any
    output_bias_1: Any
    hidden: Any
    biases: Any


@kernel
def first_chunk(
    tables: tl.tuple,
    tile: tl.tuple,
    key: tl.tensor,
    first: tl.tensor,
    shape: tl.tuple,
) -> tl.tensor:
    """Columns from ``first`` on of the tower's first activation, [S, C]."""
    WIDTH: tl.constexpr = shape.widths[0]
    user_SC = load_rows(tables.user_tower_BH, tile.row_S, tile.valid_S, first, shape.chunk, WIDTH)
    item_SC = load_rows(tables.item_tower_IH, tile.item_S, tile.valid_S, first, shape.chunk, WIDTH)
    return tower.activated(user_SC + item_SC, key, tile.sample_S, 0, first, shape)


@kernel
def gathered_product(
    tables: tl.tuple, tile: tl.tuple, first: tl.tensor, COLUMNS: tl.constexpr, shape: tl.tuple
) -> tl.tuple:
    """Factors of users and of items from ``first`` on, [S, COLUMNS] each."""
    WIDTH: tl.constexpr = shape.factors
    user_SF = load_rows(tables.user_product_BF, tile.row_S, tile.valid_S, first, COLUMNS, WIDTH)
    item_SF = load_rows(tables.item_product_IF, tile.item_S, tile.valid_S, first, COLUMNS, WIDTH)
    return user_SF, item_SF

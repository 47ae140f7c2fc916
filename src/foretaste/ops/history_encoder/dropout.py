"""Which entries of histories the encoder's input dropout keeps: a hash of (key, row, item).

Shape suffixes: B users, N interactions, I items.
"""

from __future__ import annotations

from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import hash_words, logical_shift_right

_LEVELS = 1 << 16


def drop_threshold(rate: float) -> int:
    """Words whose high 16 bits are below this are dropped; never all of them."""
    return min(round(rate * _LEVELS), _LEVELS - 1)


def keep_scale(rate: float) -> float:
    """What kept entries are multiplied by: 1 / the quantised keep rate."""
    return 1.0 / (1.0 - drop_threshold(rate) / _LEVELS)


def kept_entries(histories: HistoryTensors, row_index_N: Tensor, rate: float, key: int) -> Tensor:
    """Which entries stay, bool [N]; entry (row, item) is decided by word ``row * I + item``."""
    word_N = hash_words(key, row_index_N * histories.num_items + histories.item_index.long())
    return logical_shift_right(word_N, 48) >= drop_threshold(rate)

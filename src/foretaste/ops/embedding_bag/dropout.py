"""Which entries of histories the encoder's input dropout keeps: four decisions to a random word.

Shape suffixes: N interactions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.random import hash_words

_LEVELS = 1 << 16
_SIGN = 1 << 15
_SIGNS = 0x8000_8000_8000_8000 - (1 << 64)


def drop_threshold(rate: float) -> int:
    """16 bits below this are dropped; never all of them."""
    return min(round(rate * _LEVELS), _LEVELS - 1)


def keep_scale(rate: float) -> float:
    """What kept entries are multiplied by: 1 / the quantised keep rate."""
    return 1.0 / (1.0 - drop_threshold(rate) / _LEVELS)


def kept_entries(num_entries: int, rate: float, key: int | Tensor, device: torch.device) -> Tensor:
    """Which entries stay, bool [N]: entry n by 16 bits of word ``n // 4``, the n % 4th from below.

    Entries are counted from the batch's first user on.
    """
    word = hash_words(key, torch.arange(-(-num_entries // 4), device=device))
    word ^= _SIGNS  # which lets a signed comparison order unsigned bits
    return word.view(torch.int16)[:num_entries] >= drop_threshold(rate) - _SIGN

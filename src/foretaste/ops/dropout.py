"""Dropout from counted random bytes: eight decisions to a 64-bit word, nothing stored."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.random import hash_words

_LEVELS = 256


def drop_threshold(rate: float) -> int:
    """Bytes below this are dropped: ``rate`` in steps of 1/256, never everything."""
    return min(round(rate * _LEVELS), _LEVELS - 1)


def keep_rate(rate: float) -> float:
    """The share that is kept once ``rate`` is quantised; what is kept is divided by it."""
    return 1.0 - drop_threshold(rate) / _LEVELS


def keep_mask(
    key: int, first_sample: int, num_samples: int, width: int, rate: float, device: torch.device
) -> Tensor:
    """Which activations stay, bool [num_samples, width].

    Column c of sample s is byte c % 8 of word ``s * ceil(width / 8) + c // 8`` of the stream
    ``key``, samples counted from ``first_sample``.
    """
    words_per_sample = -(-width // 8)
    first_word = first_sample * words_per_sample
    counter = torch.arange(
        first_word, first_word + num_samples * words_per_sample, dtype=torch.int64, device=device
    )
    byte = hash_words(key, counter).view(torch.uint8).view(num_samples, 8 * words_per_sample)
    return byte[:, :width] >= drop_threshold(rate)

"""Dropout from counted random words: eight or four decisions to a 64-bit word, nothing stored.

Shape suffixes: S samples, W words, L layers, C bytes, N interactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from foretaste.ops.random import GOLDEN, hash_words, mix_

ACTIVATION_BITS = 8
"""Random bits that decide about an activation of a tower."""
ENTRY_BITS = 16
"""Random bits that decide about an entry of a history."""
_SIGNS = 0x8000_8000_8000_8000 - (1 << 64)


def drop_threshold(rate: float, num_bits: int = ACTIVATION_BITS) -> int:
    """The least random number of so many bits that keeps: ``rate`` quantised, below 1."""
    num_levels = 1 << num_bits
    return min(round(rate * num_levels), num_levels - 1)


def keep_rate(rate: float, num_bits: int = ACTIVATION_BITS) -> float:
    """The share that is kept once ``rate`` is quantised; kept values are divided by it."""
    return 1.0 - drop_threshold(rate, num_bits) / (1 << num_bits)


def keep_mask(
    key: int | Tensor,
    first_sample: int,
    num_samples: int,
    width: int,
    rate: float,
    device: torch.device,
) -> Tensor:
    """True for activations that stay, bool [num_samples, width].

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


def keep_entries(num_entries: int, rate: float, key: int | Tensor, device: torch.device) -> Tensor:
    """True for entries that stay, bool [N]: entry n by 16 bits of word ``n // 4``, lowest first.

    Entries are counted from the batch's first user on.
    """
    word = hash_words(key, torch.arange(-(-num_entries // 4), device=device))
    word ^= _SIGNS  # which lets a signed comparison order unsigned bits
    return word.view(torch.int16)[:num_entries] >= drop_threshold(rate, ENTRY_BITS) - (1 << 15)


_SIGNED = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as a floating-point type, by bytes."""


class LayerMasks:
    """The dropout masks of every layer's activations, for one chunk of samples after another.

    The decisions are those of `keep_mask` with each layer's key and width. The words of all layers
    are hashed together, and applied as bits: and-ing an activation with all ones or all zeros
    costs a tenth of comparing bytes and multiplying by the outcome. All of it happens in memory
    that is used again for every chunk, and so stays in a cache.

    Args:
        keys_L: the stream of each layer, int64, on the device of the activations.
        widths: the width of each layer's activations.
        max_samples: the largest chunk.
        dtype: of the activations.
    """

    def __init__(
        self,
        keys_L: Tensor,
        widths: Sequence[int],
        rate: float,
        max_samples: int,
        dtype: torch.dtype,
    ) -> None:
        self.threshold = drop_threshold(rate)
        self.widths = list(widths)
        self.num_words = [-(-width // 8) for width in widths]
        device = keys_L.device
        columns = [torch.arange(words, device=device) for words in self.num_words]
        strides = [torch.full_like(column, len(column)) for column in columns]
        starts = [column * GOLDEN + key for key, column in zip(keys_L, columns, strict=True)]
        self.stride_W = torch.cat(strides).mul_(GOLDEN)
        sample_S1 = torch.arange(max_samples, device=device)[:, None]
        self.start_SW = torch.cat(starts) + sample_S1 * self.stride_W
        self._word_SW = torch.empty_like(self.start_SW)
        self._spare_SW = torch.empty_like(self.start_SW)
        most = max_samples * max(widths)
        self._bits = torch.empty(most, dtype=_SIGNED[dtype.itemsize], device=device)

    def draw(self, first_sample: int, num_samples: int) -> list[Tensor]:
        """Random bytes for `drop_`, a tensor for each layer; valid until the next call."""
        word_SW, spare_SW = self._word_SW[:num_samples], self._spare_SW[:num_samples]
        torch.add(self.start_SW[:num_samples], first_sample * self.stride_W, out=word_SW)
        mix_(word_SW, spare_SW)
        word_SW.bitwise_not_()
        byte_SC = word_SW.view(torch.uint8)
        starts = accumulate((8 * words for words in self.num_words), initial=0)
        return [byte_SC[:, a : a + width] for a, width in zip(starts, self.widths, strict=False)]

    def drop_(self, activation: Tensor, byte_SW: Tensor) -> Tensor:
        """``activation`` with zeros where its bytes of `draw` say so, in place, not rescaled."""
        # a byte b came as 255 - b, so the sum is below zero, its sign all ones, where b is kept
        keep = self._bits[: byte_SW.numel()].view(byte_SW.shape).copy_(byte_SW)
        keep.add_(self.threshold - (1 << ACTIVATION_BITS)).bitwise_right_shift_(
            8 * keep.element_size() - 1
        )
        activation.view(keep.dtype).bitwise_and_(keep)
        return activation

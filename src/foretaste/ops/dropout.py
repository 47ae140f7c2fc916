"""Dropout from counted random bytes: eight decisions to a 64-bit word, nothing stored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from foretaste.ops.random import GOLDEN, hash_words, mix_

_LEVELS = 256


def drop_threshold(rate: float) -> int:
    """Bytes below this are dropped: ``rate`` in steps of 1/256, never everything."""
    return min(round(rate * _LEVELS), _LEVELS - 1)


def keep_rate(rate: float) -> float:
    """The share that is kept once ``rate`` is quantised; what is kept is divided by it."""
    return 1.0 - drop_threshold(rate) / _LEVELS


def keep_mask(
    key: int | Tensor,
    first_sample: int,
    num_samples: int,
    width: int,
    rate: float,
    device: torch.device,
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


_SIGNED = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as a floating-point type, by bytes."""


class LayerMasks:
    """The masks of several layers' activations, for one chunk of samples after another.

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
        """What `drop_` goes by, a tensor for each layer; good until the next are drawn."""
        word_SW, spare_SW = self._word_SW[:num_samples], self._spare_SW[:num_samples]
        torch.add(self.start_SW[:num_samples], first_sample * self.stride_W, out=word_SW)
        mix_(word_SW, spare_SW)
        word_SW.bitwise_not_()
        byte_SC = word_SW.view(torch.uint8)
        starts = accumulate((8 * words for words in self.num_words), initial=0)
        return [byte_SC[:, a : a + width] for a, width in zip(starts, self.widths, strict=False)]

    def drop_(self, activation: Tensor, drawn: Tensor) -> Tensor:
        """``activation`` with what was drawn to be dropped set to zero, in place, not rescaled."""
        # a byte b came as 255 - b, so the sum is below zero, its sign all ones, where b is kept
        keep = self._bits[: drawn.numel()].view(drawn.shape).copy_(drawn)
        keep.add_(self.threshold - _LEVELS).bitwise_right_shift_(8 * keep.element_size() - 1)
        activation.view(keep.dtype).bitwise_and_(keep)
        return activation

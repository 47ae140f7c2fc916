"""Dropout from counted random words: eight or four decisions to a 64-bit word, nothing stored.

Shape suffixes: S samples, W words, L layers, C bytes, B users, N interactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import GOLDEN, from_row, hash_words, mix_

ACTIVATION_BITS = 8
"""Number of random bits that decide about an activation of a tower."""
ENTRY_BITS = 16
"""Number of random bits that decide about an entry of a history."""
_SIGNS = 0x8000_8000_8000_8000 - (1 << 64)


def drop_threshold(rate: float, num_bits: int = ACTIVATION_BITS) -> int:
    """Return the least ``num_bits``-bit random number that keeps: ``rate`` quantised, below 1."""
    num_levels = 1 << num_bits
    # At least one level keeps, even at a rate of 0.999: what is kept is divided by the keep rate.
    return min(round(rate * num_levels), num_levels - 1)


def keep_rate(rate: float, num_bits: int = ACTIVATION_BITS) -> float:
    """Return the share that is kept once ``rate`` is quantised; kept values are divided by it."""
    return 1.0 - drop_threshold(rate, num_bits) / (1 << num_bits)


def keep_mask(
    key: int | Tensor,
    num_samples: int,
    width: int,
    rate: float,
    device: torch.device,
) -> Tensor:
    """Return True for activations that stay, bool [num_samples, width].

    Column c of sample s is byte c % 8 of word ``s * 2**32 + c // 8`` of the stream ``key``.
    """
    words_per_sample = -(-width // 8)
    sample_S1 = torch.arange(num_samples, device=device)[:, None]
    # 2**32 words for each sample: `from_row` begins the stream at any sample, as chunks and ranks
    # do.
    counter_SW = (sample_S1 << 32) + torch.arange(words_per_sample, device=device)
    # [S, 8 W] as bytes, on a little-endian machine the lowest first: so the GPU's kernel shifts
    # them out.
    return hash_words(key, counter_SW).view(torch.uint8)[:, :width] >= drop_threshold(rate)


def keep_entries(histories: HistoryTensors, rate: float, key: int | Tensor) -> Tensor:
    """Return True for entries of histories that stay, bool [N].

    Entry n of row r is decided by 16 bits of word ``r * 2**32 + n // 4``, lowest first.
    """
    offsets, lengths_B = histories.offsets, histories.lengths()
    num_words_B = (lengths_B + 3) // 4
    first_word_B = num_words_B.cumsum(0) - num_words_B
    row_B = torch.arange(len(histories), device=offsets.device)
    # A word's number in its row is its place among all words less the place of the row's first.
    # Adding the place below gives r * 2**32 + number.
    counter_B = (row_B << 32) - first_word_B
    counter_W = torch.repeat_interleave(counter_B, num_words_B)
    counter_W += torch.arange(counter_W.numel(), device=offsets.device)
    word_W = hash_words(key, counter_W)
    word_W ^= _SIGNS  # which lets a signed comparison order unsigned bits
    keep_C = word_W.view(torch.int16) >= drop_threshold(rate, ENTRY_BITS) - (1 << 15)
    # A row begins at a whole word. So an entry's 16 bits are number 4 * (first word of its row) +
    # (its place in the row) of all.
    position_N = torch.arange(histories.item_index.numel(), device=offsets.device)
    position_N += torch.repeat_interleave(
        4 * first_word_B - offsets[:-1], lengths_B, output_size=position_N.numel()
    )
    return keep_C[position_N]


_SIGNED = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as a floating-point type, by bytes."""


class LayerMasks:
    """The dropout masks of every layer's activations, for one chunk of samples after another.

    The decisions equal those of `keep_mask` with each layer's key and width. The words of all
    layers are hashed together, and applied as bits: and-ing an activation with all ones or all
    zeros costs a tenth of comparing bytes and multiplying by the outcome. All of it happens in
    memory that every chunk reuses, so it stays in a cache.

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
        # Words before mixing, of a chunk from sample 0; other chunks add a number.
        starts = [column * GOLDEN + key for key, column in zip(keys_L, columns, strict=True)]
        sample_S1 = torch.arange(max_samples, device=device)[:, None]
        self.start_SW = from_row(torch.cat(starts), sample_S1)
        self._word_SW = torch.empty_like(self.start_SW)
        self._spare_SW = torch.empty_like(self.start_SW)
        most = max_samples * max(widths)
        self._bits = torch.empty(most, dtype=_SIGNED[dtype.itemsize], device=device)

    def draw(self, first_sample: int, num_samples: int) -> list[Tensor]:
        """Return random bytes for `drop_`, a tensor for each layer; valid until the next call."""
        word_SW, spare_SW = self._word_SW[:num_samples], self._spare_SW[:num_samples]
        from_row(self.start_SW[:num_samples], first_sample, out=word_SW)
        mix_(word_SW, spare_SW)
        # Bytes b become 255 - b, so that `drop_` finds its answer in a sign after one addition.
        word_SW.bitwise_not_()
        byte_SC = word_SW.view(torch.uint8)
        starts = accumulate((8 * words for words in self.num_words), initial=0)
        return [byte_SC[:, a : a + width] for a, width in zip(starts, self.widths, strict=False)]

    def drop_(self, activation: Tensor, byte_SC: Tensor) -> Tensor:
        """Write zeros into ``activation`` as its bytes of `draw` say; the rest is not rescaled."""
        # a byte b came as 255 - b, so the sum is below zero, its sign all ones, where b is kept
        keep = self._bits[: byte_SC.numel()].view(byte_SC.shape).copy_(byte_SC)
        keep.add_(self.threshold - (1 << ACTIVATION_BITS)).bitwise_right_shift_(
            8 * keep.element_size() - 1
        )
        activation.view(keep.dtype).bitwise_and_(keep)
        return activation

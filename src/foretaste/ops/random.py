"""Counted randomness: every draw is a hash of (seed, purpose, epoch or step, position).

Nothing is drawn from a generator, so the same seed gives the same integers on every device, for
every chunking and rank count, and there is no generator state to store. The hash is SplitMix64
(Steele, Lea & Flood 2014), which costs a few int64 tensor operations a word.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""Distance between neighbouring counters before mixing: word n is ``mix(n * GOLDEN + key)``."""
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_POSITIONS_AT_ONCE = 1 << 18
_MASK_64 = (1 << 64) - 1


class Purpose(IntEnum):
    """Uses of random words; each has streams of its own."""

    INITIALISE = 1
    SHUFFLE = 2
    NEGATIVES = 3
    DROPOUT = 4
    NOISE = 5
    FOLD_IN_NEGATIVES = 6
    CANDIDATES = 7
    VALIDATION_USERS = 8
    VALIDATION_CANDIDATES = 9


def stream_key(seed: int, purpose: Purpose, *parts: int) -> int:
    """The 64-bit key of one stream, as a signed integer; ``parts`` are epoch, step, layer..."""
    key = seed
    for part in (int(purpose), *parts):
        key = _next_key(key, part)
    return key


def stream_keys(key: int | Tensor, purpose: Purpose, *parts: int | Tensor) -> Tensor:
    """As `stream_key`, on a device: int64 of the shape that ``key`` and ``parts`` broadcast to.

    At least one of them is an int64 tensor. Steps captured as a CUDA graph take their keys so.
    """
    for part in (int(purpose), *parts):
        if isinstance(part, Tensor):
            key = mix_(key + (part + 1) * GOLDEN)
        elif isinstance(key, Tensor):
            key = mix_(key + _signed((part + 1) * GOLDEN & _MASK_64))
        else:
            key = _next_key(key, part)
    assert isinstance(key, Tensor)
    return key


def key_on(device: torch.device, key: int | Tensor) -> Tensor:
    """A key as int64 [1] on the device: filled there, for copying it would wait for the device.

    In memory of its own: kernels are compiled anew for a pointer that is aligned otherwise.
    """
    if isinstance(key, Tensor):
        return key.view(1).clone()
    return torch.full((1,), key, dtype=torch.int64, device=device)


def hash_words(key: int | Tensor, counter: Tensor) -> Tensor:
    """Random 64-bit words, int64 of ``counter``'s shape: word number ``counter`` of a stream.

    Args:
        key: from `stream_key`; an int64 tensor that broadcasts to ``counter``'s shape also serves.
        counter: int64 positions in the stream.
    """
    word = counter * GOLDEN
    word += key
    return mix_(word)


def mix_(word: Tensor, spare: Tensor | None = None) -> Tensor:
    """SplitMix64's finaliser on int64 words, in place: every bit in moves every bit out.

    ``spare`` is memory to work in, as large as ``word``.
    """
    spare = torch.empty_like(word) if spare is None else spare
    _xor_shifted_(word, 30, spare)
    word *= _signed(_MIX_1)
    _xor_shifted_(word, 27, spare)
    word *= _signed(_MIX_2)
    _xor_shifted_(word, 31, spare)
    return word


def _xor_shifted_(word: Tensor, bits: int, spare: Tensor) -> None:
    """``word ^= word >> bits`` with zeros shifted in."""
    word ^= logical_shift_right(word, bits, out=spare)


def logical_shift_right(word: Tensor, bits: int, *, out: Tensor | None = None) -> Tensor:
    """``word >> bits`` with zeros shifted in; torch shifts in the sign."""
    shifted = torch.bitwise_right_shift(word, bits, out=out)
    return shifted.bitwise_and_((1 << (64 - bits)) - 1)


def bounded(word: Tensor, bound: Tensor | int) -> Tensor:
    """Integers in [0, bound), int64, from random words; ``bound`` at most 2**31.

    Multiply and shift (Lemire 2019): the bias is below bound / 2**32.
    """
    return (logical_shift_right(word, 32) * bound) >> 32


def normals(key: int | Tensor, counter: Tensor) -> Tensor:
    """Two standard normal values of each word, float32 [*counter.shape, 2] (Box & Muller 1958)."""
    word = hash_words(key, counter)
    radius = (logical_shift_right(word, 32).float() + 0.5).mul_(2.0**-32)
    angle = (word & 0xFFFFFFFF).float().mul_(2.0 * torch.pi / 2.0**32)
    radius = radius.clamp_(max=1.0).log_().mul_(-2.0).sqrt_()
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)


def permutation(key: int, size: int, device: torch.device | str) -> Tensor:
    """A keyed permutation of 0..size-1, int64 [size]: nothing is sorted, nothing is stored.

    Four Feistel rounds over the next power of two; values beyond ``size`` are skipped. Good enough
    for shuffling; over a handful of positions some orders come up more often than others.
    """
    num_bits = max(2, (size - 1).bit_length())
    num_positions = 1 << num_bits if size else 0
    low_bits = num_bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (num_bits - low_bits)) - 1
    order = torch.empty(size + 1, dtype=torch.int64, device=device)
    num_found = torch.zeros((), dtype=torch.int64, device=device)
    for start in range(0, num_positions, _POSITIONS_AT_ONCE):
        stop = min(start + _POSITIONS_AT_ONCE, num_positions)
        position = torch.arange(start, stop, dtype=torch.int64, device=device)
        high, low = position >> low_bits, position & low_mask
        for round_number in (0, 2):
            high ^= _round_word(key, round_number, low) & high_mask
            low ^= _round_word(key, round_number + 1, high) & low_mask
        value = (high << low_bits) | low
        is_kept = value < size
        # by counting, for a selection by mask would wait for the device; the last slot is waste
        slot = torch.where(is_kept, is_kept.cumsum(0).add_(num_found - 1), size)
        order.scatter_(0, slot, value)
        num_found += is_kept.sum()
    return order[:size]


def _round_word(key: int, round_number: int, half: Tensor) -> Tensor:
    return hash_words(stream_key(key, Purpose.SHUFFLE, round_number), half)


def _next_key(key: int, part: int) -> int:
    """``mix(key + (part + 1) * GOLDEN)`` modulo 2**64."""
    word = (key + (part + 1) * GOLDEN) & _MASK_64
    word = ((word ^ (word >> 30)) * _MIX_1) & _MASK_64
    word = ((word ^ (word >> 27)) * _MIX_2) & _MASK_64
    return _signed(word ^ (word >> 31))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word

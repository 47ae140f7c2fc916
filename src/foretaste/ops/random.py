"""Counted randomness: every draw is a hash of (seed, purpose, epoch or step, position).

Nothing is drawn from a generator, so the same seed gives the same integers on every device, for
every chunking and rank count, and there is no generator state to store. The hash is SplitMix64
(Steele, Lea & Flood 2014), which costs a few int64 tensor operations a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum

import torch
from torch import Tensor

from foretaste.ops.limits import LIMITS

# Odd, so multiplying by it is one to one modulo 2**64: no two counters of a stream share a word.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""Distance between neighbouring counters before mixing: word n is ``mix(n * GOLDEN + key)``."""
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK_64 = (1 << 64) - 1
_ROW = (GOLDEN & 0xFFFFFFFF) << 32
"""``2**32 * GOLDEN`` modulo 2**64: the distance between neighbouring rows before mixing."""


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
    HISTORY_LENGTHS = 10


def stream_key(seed: int, purpose: Purpose, *parts: int) -> int:
    """Return the signed 64-bit key of one stream; ``parts`` are epoch, step, layer and more."""
    key = seed
    for part in (int(purpose), *parts):
        key = _next_key(key, part)
    return key


def stream_keys(key: int | Tensor, purpose: Purpose, *parts: int | Tensor) -> Tensor:
    """Return the keys of `stream_key` on a device: int64, ``key`` and ``parts`` broadcast.

    One of ``key`` and ``parts`` is an int64 tensor. Steps captured as a CUDA graph take their keys
    so.
    """
    for part in (int(purpose), *parts):
        if isinstance(part, Tensor):
            # A stream's key is the hash of its parent's key and a part; the parts are hashed in
            # turn.
            key = mix_(key + (part + 1) * GOLDEN)
        elif isinstance(key, Tensor):
            key = mix_(key + _signed((part + 1) * GOLDEN & _MASK_64))
        else:
            key = _next_key(key, part)
    assert isinstance(key, Tensor)
    return key


def key_on_device(device: torch.device, key: int | Tensor) -> Tensor:
    """Return a key as int64 [1], filled on the device, because a copy would wait for it.

    The tensor has memory of its own: kernels are compiled again for a pointer of another alignment.
    """
    if isinstance(key, Tensor):
        return key.view(1).clone()
    return torch.full((1,), key, dtype=torch.int64, device=device)


def from_row(key: Tensor, first_row: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the key of a stream from ``first_row`` on, where row r begins at word ``r * 2**32``.

    Its rows 0, 1... are the rows ``first_row``, ``first_row + 1``... of the stream.
    """
    # (n + r 2**32) GOLDEN + key = n GOLDEN + (r 2**32 GOLDEN + key): rows are skipped in the key
    # alone.
    distance = first_row * _ROW
    if isinstance(distance, int):
        distance = _signed(distance & _MASK_64)
    return torch.add(key, distance, out=out)


def hash_words(key: int | Tensor, counter: Tensor) -> Tensor:
    """Return word number ``counter`` of a stream: random 64 bits, int64 of its shape.

    Args:
        key: from `stream_key`; an int64 tensor that broadcasts to ``counter``'s shape also serves.
        counter: int64 positions in the stream.
    """
    word = counter * GOLDEN
    word += key
    return mix_(word)


def mix_(word: Tensor, spare: Tensor | None = None) -> Tensor:
    """Apply SplitMix64's finaliser to int64 words in place: each input bit affects each output bit.

    ``spare`` is memory to work in, as large as ``word``.
    """
    spare = torch.empty_like(word) if spare is None else spare
    # In tensor operations SplitMix64 makes 5.6 GB/s of words, where Philox4x32 made 1.1.
    # Random bytes of 16 million decisions took 16 ms this way, 12 ms by random_ and 161 ms by
    # bernoulli_, on two cores; random_ keeps a state, and leaves bit 63 zero.
    _xor_shifted_(word, 30, spare)
    word *= _signed(_MIX_1)
    _xor_shifted_(word, 27, spare)
    word *= _signed(_MIX_2)
    _xor_shifted_(word, 31, spare)
    return word


def _xor_shifted_(word: Tensor, bits: int, spare: Tensor) -> None:
    """Compute ``word ^= word >> bits`` with zeros shifted in."""
    word ^= logical_shift_right(word, bits, out=spare)


def logical_shift_right(word: Tensor, bits: int, *, out: Tensor | None = None) -> Tensor:
    """Return ``word >> bits`` with zeros shifted in; torch shifts in the sign."""
    shifted = torch.bitwise_right_shift(word, bits, out=out)
    return shifted.bitwise_and_((1 << (64 - bits)) - 1)


def bounded_integers(word: Tensor, bound: Tensor | int) -> Tensor:
    """Return integers in [0, bound), int64, from random words; ``bound`` at most 2**31.

    Multiply and shift (Lemire 2019): the bias is below bound / 2**32.
    """
    # In integers: float32 has 24 bits, so of more than 16.7 million items it would never draw some.
    return (logical_shift_right(word, 32) * bound) >> 32


def normals(key: int | Tensor, counter: Tensor) -> Tensor:
    """Return two standard normals per word, float32 [*counter.shape, 2] (Box & Muller 1958)."""
    word = hash_words(key, counter)
    # sqrt(-2 ln u) (cos(2 pi v), sin(2 pi v)), for u and v of the upper and the lower 32 bits.
    # The half keeps the logarithm finite; float32 rounds the last words up to 1, whose radius is 0.
    radius = (logical_shift_right(word, 32).float() + 0.5).mul_(2.0**-32)
    angle = (word & 0xFFFFFFFF).float().mul_(2.0 * torch.pi / 2.0**32)
    radius = radius.clamp_(max=1.0).log_().mul_(-2.0).sqrt_()
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)


@torch.no_grad()
def fill_normal_(table: Tensor, key: int, std: float, first_row: int = 0) -> None:
    """Fill ``table``, [R, C] or [R], with N(0, std²).

    Columns 2w and 2w + 1 of row r are the `normals` of word ``(first_row + r) * 2**32 + w``: a
    table of some rows gets what a table of all has there. All devices get the CPU's values.
    """
    for rows, counter_RW in _words_of_rows(table, first_row):
        values_RC = normals(key, counter_RW).mul_(std).flatten(1)[:, : rows.shape[1]]
        rows.copy_(values_RC)


@torch.no_grad()
def fill_uniform_(table: Tensor, key: int, bound: float, first_row: int = 0) -> None:
    """Fill ``table`` with uniform values in [-bound, bound], by the words of `fill_normal_`."""
    for rows, counter_RW in _words_of_rows(table, first_row):
        # Words [R, W] as [R, 2 W] integers from -2**31 to 2**31 - 1.
        halves_RC = hash_words(key, counter_RW).view(torch.int32)[:, : rows.shape[1]]
        rows.copy_(halves_RC * (bound * 2.0**-31))


def _words_of_rows(table: Tensor, first_row: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of a table's rows with their words' numbers, one for two columns, on the CPU."""
    if table.numel() == 0:
        return
    table_RC = table[:, None] if table.dim() == 1 else table
    column_W = torch.arange((table_RC.shape[1] + 1) // 2)
    for rows in torch.split(table_RC, max(1, LIMITS["cpu"].words // len(column_W))):
        row_R1 = torch.arange(first_row, first_row + len(rows))[:, None]
        first_row += len(rows)
        yield rows, (row_R1 << 32) + column_W


class Permutation:
    """A keyed permutation of 0..size-1, computed at any index on its own.

    ``order(position)`` is the row at a position, ``order.inverse()(row)`` the position of a row.
    A generalised Feistel network over a grid of ``size`` points or a few more, which are walked
    over (Black & Rogaway 2002, their second and third method). The grid is about as high as wide,
    so its round functions are tables of about ``sqrt(size)`` words, hashed once.
    """

    def __init__(self, size: int, sides: tuple[int, int], rounds: list[tuple[int, Tensor]]) -> None:
        self.size = size
        self.sides = sides
        self.rounds = rounds
        # Walking on until a point is inside has an inverse at each index. Counting the points
        # inside has none, and was uneven below about 700 positions.
        beyond = torch.arange(size, sides[0] * sides[1], device=rounds[0][1].device)
        # no walk meets one of them twice, so their number bounds its steps
        self._landing = beyond
        for _ in range(beyond.numel()):
            landing = self._landing
            self._landing = torch.where(landing < size, landing, self._step(landing))

    @classmethod
    def keyed(cls, key: int, size: int, device: torch.device | str) -> Permutation:
        """Return the permutation of a stream."""
        sides = _grid(size)
        # Pairs of positions are uniform but for a share of about size**-3; for the smallest sizes
        # it is 4**-15.
        num_rounds = 8 if size > 1 << 10 else 32
        keys = stream_keys(key, Purpose.SHUFFLE, torch.arange(num_rounds, device=device))
        counter = torch.arange(max(sides), device=device).expand(num_rounds, -1)
        words = hash_words(keys[:, None], counter)
        tables = (
            bounded_integers(words[side::2, : sides[1 - side]], sides[side]) for side in (0, 1)
        )
        rounds = [round_ for pair in zip(*tables, strict=True) for round_ in enumerate(pair)]
        return cls(size, sides, rounds)

    def inverse(self) -> Permutation:
        """Return the permutation that undoes this one."""
        rounds = [(side, -table % self.sides[side]) for side, table in reversed(self.rounds)]
        return Permutation(self.size, self.sides, rounds)

    def __call__(self, index: Tensor) -> Tensor:
        """Return the values at ``index``, int64 of its shape."""
        value = self._step(index)
        if self._landing.numel() == 0:
            return value
        landing = self._landing[(value - self.size).clamp_(min=0)]
        return torch.where(value < self.size, value, landing)

    def values(self) -> Tensor:
        """Return the values at 0..size-1, int64 [size]; beside them, memory stays bounded."""
        values = torch.empty(self.size, dtype=torch.int64, device=self._landing.device)
        at_once = LIMITS[values.device.type].positions
        for start in range(0, self.size, at_once):
            stop = min(start + at_once, self.size)
            values[start:stop] = self(torch.arange(start, stop, device=values.device))
        return values

    def _step(self, index: Tensor) -> Tensor:
        """Run one pass of the network over points of the grid."""
        width = self.sides[1]
        point = [index // width, index % width]
        for side, table in self.rounds:
            # The summand depends on the other coordinate alone, so subtracting it undoes the round
            # for every table.
            point[side].add_(table[point[1 - side]]).remainder_(self.sides[side])
        return point[0].mul_(width).add_(point[1])


def _grid(size: int) -> tuple[int, int]:
    """Return the sides, at least 2, of a grid of about ``size`` points, within a factor of 4."""
    root = math.isqrt(max(size - 1, 0)) + 1
    heights = range(max(2, (root + 1) // 2), max(2, root) + 1)
    # `-size % height` points lie beyond ``size``. The fewest win, and of equal ones the highest
    # grid.
    height = min(reversed(heights), key=lambda height: -size % height)
    return height, max(2, -(-size // height))


def _next_key(key: int, part: int) -> int:
    """Return ``mix(key + (part + 1) * GOLDEN)`` modulo 2**64."""
    # Parts count from 1, as `mix(0)` is 0: with seed 0 and part 0 the key would stay 0.
    word = (key + (part + 1) * GOLDEN) & _MASK_64
    word = ((word ^ (word >> 30)) * _MIX_1) & _MASK_64
    word = ((word ^ (word >> 27)) * _MIX_2) & _MASK_64
    return _signed(word ^ (word >> 31))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word

"""Counted randomness against arbitrary-precision integers, and its statistics."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretaste.ops.random import (
    Permutation,
    Purpose,
    bounded_integers,
    fill_normal_,
    fill_uniform_,
    hash_words,
    logical_shift_right,
    normals,
    stream_key,
    stream_keys,
)
from tests.ops.cases import excess_chi_square

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
SEED_1234567 = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
"""The first outputs of the published SplitMix64 for seed 1234567."""

words = st.integers(-(1 << 63), (1 << 63) - 1)


def mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def unmix(word: int) -> int:
    """The word that `mix` sends to ``word``."""
    word = word ^ (word >> 31) ^ (word >> 62)
    word = (word * pow(0x94D049BB133111EB, -1, 1 << 64)) & MASK
    word = word ^ (word >> 27) ^ (word >> 54)
    word = (word * pow(0xBF58476D1CE4E5B9, -1, 1 << 64)) & MASK
    return word ^ (word >> 30) ^ (word >> 60)


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def unsigned(tensor: torch.Tensor) -> list[int]:
    return [word & MASK for word in tensor.tolist()]


def test_hash_words_are_the_published_splitmix64(device: torch.device) -> None:
    counter = torch.arange(1, 6, device=device)
    assert unsigned(hash_words(1234567, counter)) == SEED_1234567


@given(words, st.lists(words, min_size=1, max_size=8))
def test_hash_words_agree_with_big_integers(key: int, counters: list[int]) -> None:
    expected = [mix((key + counter * GOLDEN) & MASK) for counter in counters]
    counter = torch.tensor(counters)
    assert unsigned(hash_words(key, counter)) == expected
    assert unsigned(hash_words(torch.tensor(key), counter)) == expected
    assert counter.tolist() == counters


@given(words, st.integers(1, 63))
def test_logical_shift_brings_in_zeros(word: int, bits: int) -> None:
    assert logical_shift_right(torch.tensor([word]), bits).item() == (word & MASK) >> bits


def test_stream_keys_are_fixed_for_ever() -> None:
    """Runs made long ago must repeat: the key is this hash and no other."""
    key = 7
    for part in (int(Purpose.DROPOUT), 12, 3):
        key = mix((key + (part + 1) * GOLDEN) & MASK)
    assert stream_key(7, Purpose.DROPOUT, 12, 3) == signed(key)


@given(words, st.lists(st.integers(0, 1 << 40), min_size=1, max_size=3), st.integers(0, 7))
def test_stream_keys_on_a_device_are_the_same(seed: int, parts: list[int], which: int) -> None:
    """Keys are equal no matter if key or parts are tensors."""
    expected = stream_key(seed, Purpose.NOISE, *parts)
    chosen = {which % (len(parts) + 1), (which // 2) % (len(parts) + 1)}
    key, *rest = (
        torch.tensor(value) if place in chosen else value
        for place, value in enumerate([signed(seed & MASK), *parts])
    )
    assert stream_keys(key, Purpose.NOISE, *rest).item() == expected


@given(words, st.integers(0, 1 << 31))
def test_bounded_is_multiply_and_shift(word: int, bound: int) -> None:
    expected = (((word & MASK) >> 32) * bound) >> 32
    assert bounded_integers(torch.tensor([word]), bound).item() == expected
    assert bounded_integers(torch.tensor([word]), torch.tensor([bound])).item() == expected
    assert 0 <= expected < max(bound, 1)


def test_bounded_is_uniform() -> None:
    drawn = bounded_integers(hash_words(3, torch.arange(200_000)), 37)
    assert abs(excess_chi_square(drawn.bincount(minlength=37).numpy())) < 4.0


def test_normal_follows_the_normal_distribution() -> None:
    """Kolmogorov-Smirnov at a level of about one in a million."""
    values = np.sort(normals(12, torch.arange(50_000)).flatten().double().numpy())
    share = torch.special.ndtr(torch.from_numpy(values)).numpy()
    gap = np.abs(share - (np.arange(len(values)) + 0.5) / len(values)).max()
    assert gap < 2.7 / math.sqrt(len(values))


@pytest.mark.parametrize("word", [0, 0x80000000, 0xFFFFFFFF << 32, MASK])
def test_normal_is_finite_at_the_ends(word: int) -> None:
    key = signed(unmix(word))
    values = normals(key, torch.zeros(1, dtype=torch.int64))
    assert values.shape == (1, 2)
    assert values.square().sum() <= -2 * math.log(0.5 * 2.0**-32) + 1e-3


def order_of(size: int, key: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return Permutation.keyed(key, size, device).values()


def test_permutation_of_every_size_is_a_bijection_with_an_inverse() -> None:
    for size in (*range(1100), *range(1100, 5001, 97)):
        permutation, index = Permutation.keyed(size, size, "cpu"), torch.arange(size)
        order = permutation.values()
        assert order.dtype == torch.int64
        assert torch.equal(order.sort().values, index)
        assert torch.equal(permutation.inverse()(order), index)


@pytest.mark.parametrize("size", [2**10, 2**10 + 1, 2**18 + 3])
def test_permutation_is_the_same_on_every_device(size: int, device: torch.device) -> None:
    order = order_of(size, 99, device)
    assert torch.equal(order.sort().values, torch.arange(size, device=device))
    assert torch.equal(order.cpu(), order_of(size, 99))


@pytest.mark.parametrize("size", [10**8 + 7, 2**40 + 1])
def test_a_large_permutation_is_computed_only_at_the_asked_positions(size: int) -> None:
    permutation = Permutation.keyed(5, size, "cpu")
    index = torch.randint(size, (1000, 20), generator=torch.Generator().manual_seed(1))
    index[0, :2] = torch.tensor([0, size - 1])
    found = permutation(index)
    assert torch.equal(permutation.inverse()(found), index)
    assert ((found >= 0) & (found < size)).all()
    assert abs(excess_chi_square((found * 64 // size).flatten().bincount().numpy())) < 5.0


@pytest.mark.parametrize("size", [2, 3, 8, 31, 100])
def test_permutation_sends_positions_and_pairs_everywhere_equally(size: int) -> None:
    orders = np.stack([order_of(size, key).numpy() for key in range(800)])
    for position in range(size):
        assert excess_chi_square(np.bincount(orders[:, position], minlength=size)) < 5.0
    for one, other in {(0, 1), (0, size - 1), (size // 2, size // 2 - 1)}:
        pair = orders[:, one] * size + orders[:, other]
        counts = np.bincount(pair, minlength=size * size)
        assert counts[:: size + 1].sum() == 0
        assert abs(excess_chi_square(np.delete(counts, np.s_[:: size + 1]))) < 5.0


FILLS = [fill_normal_, fill_uniform_]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(("shape", "rows_at_once"), [((301, 7), 13), ((301,), 1), ((301, 0), 9)])
def test_rows_of_a_table_are_filled_alike_in_any_shard_and_block(
    fill: Callable[..., None],
    shape: tuple[int, ...],
    rows_at_once: int,
    device: torch.device,
    limit: Callable[..., None],
) -> None:
    whole = torch.full(shape, torch.nan)
    fill(whole, 5, 0.3)
    assert whole.isfinite().all()
    columns = shape[1] if len(shape) == 2 else 1
    limit(words=rows_at_once * -(-columns // 2))
    for start, stop in [(0, 301), (0, 17), (17, 300), (300, 301), (9, 9)]:
        shard = torch.full((stop - start, *shape[1:]), torch.nan, device=device)
        fill(shard, 5, 0.3, start)
        assert torch.equal(shard.cpu(), whole[start:stop])


@pytest.mark.parametrize("fill", FILLS)
def test_filled_values_equal_their_random_words(fill: Callable[..., None]) -> None:
    """The values are written out because old runs must repeat."""
    table = torch.empty(2, 3)
    fill(table, 5, 0.25, first_row=6)
    counter = torch.tensor([[row << 32, (row << 32) + 1] for row in (6, 7)])
    halves = [
        [word & 0xFFFFFFFF, word >> 32] for word in unsigned(hash_words(5, counter).flatten())
    ]
    uniforms = [(half - (half >> 31 << 32)) * 2.0**-31 for pair in halves for half in pair]
    values = {fill_normal_: normals(5, counter), fill_uniform_: torch.tensor(uniforms)}[fill]
    assert torch.equal(table, 0.25 * values.reshape(2, 4)[:, :3])


@pytest.mark.parametrize("fill", FILLS)
def test_filled_values_follow_their_distribution(fill: Callable[..., None]) -> None:
    """Columns, rows and a table's next columns follow it; Kolmogorov-Smirnov as above."""
    table = torch.empty(4000, 25)
    fill(table, 12, 0.5)
    values = table.double()
    if fill is fill_uniform_:
        share = values + 0.5
        assert values.abs().max() <= 0.5
    else:
        share = torch.special.ndtr(2.0 * values)
    for part in (share.flatten(), share[:, 0], share[:, 24], share[:800].flatten()):
        order = (torch.arange(len(part)) + 0.5) / len(part)
        assert (part.sort().values - order).abs().max() < 2.7 / math.sqrt(len(part))
    correlation = np.corrcoef(values.T.numpy())
    assert np.abs(correlation - np.eye(25)).max() < 5 / math.sqrt(4000)
    below = (values[1:] * values[:-1]).mean() / values.square().mean()
    assert abs(below) < 4 / math.sqrt(values.numel())

"""Histories with an order for the tests of SASRec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foretaste.models.parts import Shards
from foretaste.ops.histories import HistoryTensors

NUM_ITEMS = 40


def in_order(sequences: Sequence[Sequence[int]], num_items: int = NUM_ITEMS) -> HistoryTensors:
    """Histories whose items came in this order; rows are stored by item as everywhere."""
    offsets = np.cumsum([0, *map(len, sequences)])
    orders = [np.argsort(row, kind="stable") for row in sequences]
    items = [np.asarray(row, dtype=np.int32)[o] for row, o in zip(sequences, orders, strict=True)]
    # Places have gaps, as if some items of the data were outside the catalogue.
    position = np.concatenate([*(3 * order + 2 for order in orders), np.zeros(0, dtype=np.int64)])
    item_index = np.concatenate([*items, np.zeros(0, dtype=np.int32)])
    return HistoryTensors.from_numpy(offsets, item_index, num_items, "cpu", position)


def random_sequences(num_users: int, longest: int = 12, seed: int = 3) -> list[list[int]]:
    """Sequences of 0 to ``longest`` different items."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, num_users)
    return [rng.permutation(NUM_ITEMS)[:length].tolist() for length in lengths]


class Part(Shards):
    """One of several equal parts of a batch."""

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of

    def part_of(self, size: int) -> range:
        return range(self.number * size // self.of, (self.number + 1) * size // self.of)


def parts(of: int) -> Iterator[Part]:
    return (Part(number, of) for number in range(of))

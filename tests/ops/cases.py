"""Small inputs and measures shared by tests of several rooms."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from hypothesis import strategies as st

from foretaste.ops.histories import HistoryTensors


def histories_of(
    rows: Sequence[Iterable[int]], num_items: int, device: torch.device | str = "cpu"
) -> HistoryTensors:
    """Histories of the given item sets."""
    ascending = [sorted(row) for row in rows]
    offsets = np.cumsum([0, *map(len, ascending)])
    items = np.array(list(itertools.chain(*ascending)), dtype=np.int32)
    return HistoryTensors.from_numpy(offsets, items, num_items, device)


def of_matrix(
    matrix: np.ndarray, device: torch.device | str = "cpu", *, weighted: bool = False
) -> HistoryTensors:
    """Histories of the rows of a matrix of 0 and 1, or of weights."""
    rows = [np.flatnonzero(row).tolist() for row in matrix]
    histories = histories_of(rows, matrix.shape[1], device)
    weight = torch.from_numpy(matrix[matrix != 0].astype(np.float32)).to(device)
    return replace(histories, weight=weight) if weighted else histories


def random_histories(
    rng: np.random.Generator,
    num_users: int,
    num_items: int,
    *,
    share: float = 0.3,
    device: torch.device | str = "cpu",
) -> HistoryTensors:
    """Each item with probability ``share``; user 0 has no item, the last user every item."""
    taken = rng.random((num_users, num_items)) < share
    taken[0], taken[-1] = False, True
    return of_matrix(taken, device)


def item_sets(
    *, max_users: int = 8, max_items: int = 30
) -> st.SearchStrategy[tuple[list[set[int]], int]]:
    """Strategy: the item sets of a few users, and the number of items."""
    return st.integers(1, max_items).flatmap(
        lambda num_items: st.tuples(
            st.lists(st.sets(st.integers(0, num_items - 1)), min_size=1, max_size=max_users),
            st.just(num_items),
        )
    )


def excess_chi_square(counts: np.ndarray) -> float:
    """Chi-square of ``counts`` against equal shares, in standard deviations above its mean."""
    expected = counts.sum() / len(counts)
    freedom = len(counts) - 1
    return float((((counts - expected) ** 2).sum() / expected - freedom) / np.sqrt(2 * freedom))


def rms(tensors: Iterable[torch.Tensor]) -> float:
    """Root mean square over all elements of all tensors."""
    flat = torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])
    return float(flat.square().mean().sqrt())

"""The ridge regression of every item on the others, for all pairs or for a few neighbours of each.

The weights B minimise ``tr(B'(G + R)B) - 2 tr(A'B)`` with a zero diagonal, for G and A the counts
of `foretaste.models.linear.pairs` and R a diagonal of penalties.

Shape suffixes: I items of the catalogue, K neighbours of an item, c items of a chunk, w the most
neighbours of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.models.base import FitProgress
from foretaste.models.linear.pairs import CPU, Numbers
from foretaste.ops.inverse import invert_
from foretaste.ops.least_squares import solve_systems
from foretaste.ops.workers import of_each

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries, PopularPairs

_NUMBERS_AT_ONCE = 1 << 20
"""Numbers of the systems that a thread has at once, or those of one system."""

_BYTES_PER_NUMBER = 24
"""A system is float64, and copied to be padded and to be factorized."""

_ROWS_AT_ONCE = 256


def solve_all_pairs(
    gram_II: Tensor, targets_II: Tensor | None, weight_II: Tensor, progress: FitProgress
) -> None:
    """Write the weights of all pairs; raises `torch.linalg.LinAlgError` where there are none.

    With ``P = (G + R)⁻¹`` they are ``B = P A - P diag(diag(P A) / diag(P))``. Without A, which is
    then G, that is ``-P / diag(P)`` beside the diagonal, by columns.

    Args:
        gram_II: ``G + R``, float64, written over.
        targets_II: A', float64, or None where A is G.
        weight_II: B.
    """
    num_items = len(gram_II)
    # In float64: beside the counts of popular items float32 would round a small penalty away.
    invert_(gram_II, lambda done: progress("inverting", done, num_items))
    diagonal_I = gram_II.diagonal()
    for start in range(0, num_items, _ROWS_AT_ONCE):
        # Rows of B': P is symmetric.
        rows = slice(start, start + _ROWS_AT_ONCE)
        if targets_II is None:
            row_cI = gram_II[rows] / -diagonal_I[rows, None]
        else:
            row_cI = targets_II[rows] @ gram_II
            share_c = row_cI[:, rows].diagonal() / diagonal_I[rows]
            row_cI -= share_c[:, None] * gram_II[rows]
        weight_II[:, rows] = row_cI.T.to(weight_II.dtype)
    weight_II.fill_diagonal_(0.0)


def solve_neighbors(
    entries: Entries,
    popular: PopularPairs,
    penalty_I: Numbers,
    other_IK: NDArray[np.int32],
    value_IK: NDArray[np.float32],
    progress: FitProgress,
) -> None:
    """Solve ``(G_CC + R_CC) b = A_Cj`` for the neighbours C of each item j.

    ``value_IK`` has A_Cj, and gets b. Raises `torch.linalg.LinAlgError` where there is none.
    """
    from foretaste.models.linear.kernels import fill_systems

    def solve_chunk(item_c: NDArray[np.int64]) -> int:
        width = int(size_I[item_c[0]])
        other_cw = other_IK[item_c, :width]
        system_cww = np.zeros((len(item_c), width, width))
        fill_systems(entries, popular, other_cw, system_cww)
        # A missing neighbour has the equation b = 0.
        place_w = np.arange(width)
        system_cww[:, place_w, place_w] += np.where(other_cw >= 0, penalty_I[other_cw], 1.0)
        value_cw = torch.from_numpy(value_IK[item_c, :width]).double()
        weight_cw, failure_c = solve_systems(torch.from_numpy(system_cww), value_cw)
        if failure_c.any() or not weight_cw.isfinite().all():
            raise torch.linalg.LinAlgError  # type: ignore[attr-defined]
        value_IK[item_c, :width] = weight_cw.numpy()
        return len(item_c)

    size_I, num_done = (other_IK >= 0).sum(1), int((other_IK[:, 0] < 0).sum())
    for num_solved in of_each(solve_chunk, list(_chunks(size_I)), CPU):
        num_done += num_solved
        progress("solving for weights", num_done, len(size_I))


def solving_bytes(num_items: int, num_neighbors: int) -> int:
    """Memory of `solve_neighbors`, beside what it is given."""
    numbers = max(num_neighbors**2, min(_NUMBERS_AT_ONCE, num_items * num_neighbors**2))
    return torch.get_num_threads() * (_BYTES_PER_NUMBER * numbers + 4 * num_items)


def _chunks(size_I: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Items of about the same number of neighbours, the most first; not those without any."""
    item_I = np.argsort(-size_I, kind="stable")[: int((size_I > 0).sum())]
    start = 0
    while start < len(item_I):
        stop = start + max(1, _NUMBERS_AT_ONCE // int(size_I[item_I[start]]) ** 2)
        yield item_I[start:stop]
        start = stop

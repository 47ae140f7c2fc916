"""Implicit least squares of many rows by two steps of conjugate gradients: a half-sweep of iALS.

`foretaste.ops.least_squares` has a row's system: in the eigenbasis of the fixed vectors'
Gramian, with X the vectors of the row's items times the roots t of their weights and C the diagonal
of all other terms,

    (C + X'X) w = X' t

C is the preconditioner (Saad 2003, "Iterative Methods for Sparse Linear Systems", algorithm 9.1).
If all weights are 1, X'X is at most the Gramian. The preconditioned system then has a condition
number of at most ``1 + 1 / a``, with a the weight of unobserved pairs. No row is multiplied by the
Gramian. Without the eigenbasis each step would do that (Takács, Pilászy & Tikk 2011, doi
10.1145/2043932.2043987).

Shape suffixes: N fixed vectors, D width, R rows, c rows of a chunk, S interactions of a chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import torch
from torch import Tensor

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.least_squares import TERMS_AT_ONCE, FixedVectors
from foretaste.ops.limits import LIMITS
from foretaste.ops.segments import sum_bags
from foretaste.ops.torch_internals import has_sampled_products, sampled_products
from foretaste.ops.workers import parallel_map

_STEPS = 2
"""Steps of each row in a sweep. Seconds of a sweep on one thread, and the loss after three sweeps:

    =====  ===============  ===============  =================
    steps  ml-1m, width 64  steam, 128       citeulike-a, 128
    =====  ===============  ===============  =================
    1      0.05  0.7062     0.09  0.3371     0.12  0.3296
    2      0.07  0.7054     0.11  0.3157     0.16  0.3153
    3      0.09  0.7052     0.13  0.3093     0.23  0.3146
    exact  0.36  0.7052     0.26  0.3071     0.35  0.3147
    =====  ===============  ===============  =================

Rows have 94, 10 and 37 items there: exact solutions are faster for no length.
"""

_TINY = 1e-30
"""Keeps quotients finite for rows that are already solved, whose residual is zero."""

_Chunk = tuple[slice, slice]
"""Consecutive rows, and their interactions."""


def improve_rows(
    fixed: FixedVectors,
    histories: HistoryTensors,
    unobserved_weight: float,
    ridge_R: Tensor,
    start_RD: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return vectors nearer to the solutions of `solve_rows` than ``start_RD``, and the loss.

    A row without items becomes zero. The loss is a float64 scalar.

    Args:
        histories: of the R rows, items being numbers of fixed vectors.
        unobserved_weight: a.
        ridge_R: weight of each row's squared vector, float64, above 0.
        start_RD: a vector for each row; the vectors of the last sweep are near already.
    """
    improved_RD = torch.empty_like(start_RD)
    shared_D = unobserved_weight * fixed.eigenvalue_D

    def improve_chunk(chunk: _Chunk) -> Tensor:
        rows, places = chunk
        offsets = histories.offsets[rows.start : rows.stop + 1] - places.start
        weight_S = None if histories.weight is None else histories.weight[places]
        interactions = _Interactions(
            fixed.vector_ND, histories.item_index[places], offsets, weight_S
        )
        # Both terms of C are float64: their sum is rounded once.
        diagonal_cD = (shared_D + ridge_R[rows, None]).to(start_RD.dtype)
        # The vectors change to the eigenbasis, in which the Gramian is diagonal, and back below.
        vector_cD, loss = _improve(interactions, diagonal_cD, start_RD[rows] @ fixed.basis_DD)
        torch.mm(vector_cD, fixed.basis_DD.T, out=improved_RD[rows])
        return loss

    at_once = LIMITS[histories.device.type].gradient_entries
    chunks = list(_chunks(histories.offsets.tolist(), at_once))  # sync
    losses = list(parallel_map(improve_chunk, chunks, histories.device))
    return improved_RD, torch.stack([ridge_R.new_zeros(()), *losses]).sum()


class _Interactions:
    """Interactions of some rows, with vectors of a table."""

    def __init__(
        self, table_ND: Tensor, index_S: Tensor, offsets: Tensor, weight_S: Tensor | None
    ) -> None:
        """Take ``index_S[offsets[b]:offsets[b + 1]]`` for row b; without weights each is 1."""
        self.table_ND, self.index_S = table_ND, index_S
        self.weight_S = None if weight_S is None else weight_S.to(table_ND.dtype)
        self.lengths_c = offsets.diff()
        if len(self.lengths_c) == 1:  # it may be long
            cuts = torch.arange(0, len(index_S), TERMS_AT_ONCE, device=index_S.device)
            offsets = torch.cat([cuts, offsets[1:]])
        self.piece_offsets = offsets
        """Offsets in ``index_S`` of the rows or, if there is one row alone, of its pieces."""

    def weighted(self, number_S: Tensor) -> Tensor:
        """Return a number for each interaction, times its weight."""
        return number_S if self.weight_S is None else number_S * self.weight_S

    def of_rows(self, number_c: Tensor) -> Tensor:
        """Return the number of each interaction's row, [S]."""
        return torch.repeat_interleave(number_c, self.lengths_c, output_size=len(self.index_S))

    def products(self, vector_cD: Tensor) -> Tensor:
        """Return the product of each interaction's fixed vector and its row's, [S]."""
        if self.index_S.device.type == "cpu" and has_sampled_products():
            offsets = self.piece_offsets.to(self.index_S.dtype)
            vector_pD = vector_cD.expand(len(offsets) - 1, -1)
            return sampled_products(vector_pD, self.table_ND, offsets, self.index_S)
        # A GPU, and a PyTorch without the private product, write a row of both sides for each
        # interaction: [S, D] numbers, which bounds the chunk.
        row_S = self.of_rows(torch.arange(len(vector_cD), device=vector_cD.device))
        return (self.table_ND[self.index_S] * vector_cD[row_S]).sum(1)

    def vector_sums(self, weight_S: Tensor) -> Tensor:
        """Return each row's sum of its fixed vectors times their weights, [c, D]."""
        return self._by_row(sum_bags(self.table_ND, self.index_S, self.piece_offsets, weight_S))

    def sums(self, number_S: Tensor) -> Tensor:
        """Return each row's sum of a number for each interaction, [c]."""
        sum_p = torch.segment_reduce(number_S, "sum", offsets=self.piece_offsets, initial=0.0)
        return self._by_row(sum_p)

    def _by_row(self, sum_p: Tensor) -> Tensor:
        return sum_p if len(self.lengths_c) > 1 else sum_p.sum(0, keepdim=True)


def _improve(
    interactions: _Interactions, diagonal_cD: Tensor, start_cD: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the vectors after the steps, and the loss of all."""
    # The system of a row without items is C w = 0: it starts at its solution and stays there.
    vector_cD = start_cD * (interactions.lengths_c > 0)[:, None]
    # The difference of each interaction's score to 1. Steps update it below with products that they
    # make anyway, so the loss at the end costs no further pass.
    lacking_S = 1.0 - interactions.products(vector_cD)
    direction_cD, square_c = torch.zeros_like(vector_cD), vector_cD.new_ones(len(vector_cD))
    for _ in range(_STEPS):
        sums_cD = interactions.vector_sums(interactions.weighted(lacking_S))
        residual_cD = sums_cD - diagonal_cD * vector_cD
        # z = C⁻¹ r, beta = (r, z) / (r, z before), p = z + beta p; w += p (r, z) / (p, A p) below.
        scaled_cD = residual_cD / diagonal_cD
        last_square_c, square_c = square_c, (residual_cD * scaled_cD).sum(1)
        # The direction before the first is zero, so there this factor changes nothing.
        kept_c1 = (square_c / last_square_c.clamp(min=_TINY))[:, None]
        direction_cD = torch.addcmul(scaled_cD, kept_c1, direction_cD)
        image_S = interactions.products(direction_cD)
        # (p, A p) = (p, C p) + |X p|²: A = C + X'X is never made.
        curvature_c = (direction_cD.square() * diagonal_cD).sum(1)
        curvature_c += interactions.sums(interactions.weighted(image_S.square()))
        step_c = square_c / curvature_c.clamp(min=_TINY)
        vector_cD = torch.addcmul(vector_cD, step_c[:, None], direction_cD)
        lacking_S = lacking_S - interactions.of_rows(step_c) * image_S
    # |t - X w|² + w'C w: in the eigenbasis C has the unobserved pairs and the ridge.
    loss = interactions.weighted(lacking_S.square()).sum(dtype=torch.float64)
    return vector_cD, loss + (vector_cD.square() * diagonal_cD).sum(dtype=torch.float64)


def _chunks(offsets: list[int], at_once: int) -> Iterator[_Chunk]:
    """Yield chunks of consecutive rows: at most that many interactions, or one longer row."""
    start = 0
    while start < len(offsets) - 1:
        fitting = bisect_right(offsets, offsets[start] + at_once) - 1
        stop = max(start + 1, min(fitting, start + at_once // 8))
        yield slice(start, stop), slice(offsets[start], offsets[stop])
        start = stop

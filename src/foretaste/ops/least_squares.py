"""Implicit least squares of many rows at once, solved exactly: fold-in with iALS.

For a row with items S, and vectors h of all N items fixed, the solution w minimises

    sum of (w.h_i - 1)² over S  +  a sum of (w.h_i)² over all i  +  r |w|²

(Hu, Koren & Volinsky 2008; Rendle et al. 2022, arXiv 2110.14037). In the eigenbasis of the Gramian
of h, the terms that are not of S are a diagonal C, and with X the vectors of S and Y = X C^-1/2

    C^1/2 w = (1 + Y'Y)^-1 Y' 1 = Y' (1 + YY')^-1 1

so a row of fewer items than the width takes a system of that many equations only. Rows of about the
same length are solved together, padded by zeros. Which rows share a chunk decides the last digits.

Shape suffixes: N fixed vectors, D width, R rows, c rows of a chunk, l items of its longest row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.errors import TrainingError
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.workers import parallel_map, single_threaded

# Rows whose product is float32; the products of blocks are added up in float64.
_ROWS_OF_BLOCK = 1 << 12

TERMS_AT_ONCE = 1 << 14
"""Most terms of a long row's float32 sum: a sum of 2^24 terms of one sign, added
in turn, no longer grows."""

_Chunk = tuple[int, int]
"""The first row and the end, among rows in the order of their lengths."""


@dataclass(frozen=True, eq=False)
class FixedVectors:
    """Vectors that rows are solved against, in the eigenbasis of their Gramian."""

    vector_ND: Tensor
    """In that basis; a row of zeros follows, for padding."""
    basis_DD: Tensor
    eigenvalue_D: Tensor

    @property
    def padding(self) -> int:
        """Number of the row of zeros."""
        return len(self.vector_ND) - 1

    @classmethod
    def of(cls, vector_ND: Tensor, others_MD: Tensor | None = None) -> FixedVectors:
        """Return these vectors, then ``others_MD``, which are not in the Gramian; TrainingError if
        they are not finite."""
        gramian_DD, device = gramian(vector_ND), vector_ND.device
        if not bool(gramian_DD.isfinite().all()):  # sync
            raise TrainingError("the weights became infinite or nan; raise --regularization")
        # The Gramian is float64; the vectors go back to their own dtype below.
        eigenvalue_D, basis_DD = single_threaded(lambda: torch.linalg.eigh(gramian_DD), device)
        basis_DD = basis_DD.to(vector_ND.dtype)
        num_others = 0 if others_MD is None else len(others_MD)
        rotated_ND = basis_DD.new_zeros(len(vector_ND) + num_others + 1, len(basis_DD))

        def rotate(blocks: tuple[Tensor, Tensor]) -> None:
            torch.mm(blocks[0], basis_DD, out=blocks[1])

        blocks = zip(_blocks(vector_ND), _blocks(rotated_ND[: len(vector_ND)]), strict=True)
        list(parallel_map(rotate, list(blocks), device))
        if others_MD is not None:
            rotate((others_MD, rotated_ND[len(vector_ND) : -1]))
        # A Gramian has no eigenvalue below zero. Rounding makes some, and C needs a root.
        return cls(rotated_ND, basis_DD, eigenvalue_D.clamp_(min=0.0))


def gramian(vector_ND: Tensor) -> Tensor:
    """Return ``h'h`` [D, D]: products of blocks, added up in float64 in a fixed order."""
    width = vector_ND.shape[1]
    total_DD = vector_ND.new_zeros(width, width, dtype=torch.float64)
    for part_DD in parallel_map(
        lambda block: block.T @ block, _blocks(vector_ND), vector_ND.device
    ):
        total_DD += part_DD
    return total_DD


def _blocks(vector_ND: Tensor) -> Sequence[Tensor]:
    return torch.split(vector_ND.detach(), _ROWS_OF_BLOCK)


def solve_rows(
    fixed: FixedVectors,
    histories: HistoryTensors,
    unobserved_weight: float,
    ridge_R: Tensor,
) -> Tensor:
    """Return the solution of each row, [R, D] float32.

    A row without items is zero. Raises TrainingError if a system cannot be factorized.

    Args:
        histories: of the R rows, items being numbers of fixed vectors.
        unobserved_weight: a, of the formula above.
        ridge_R: r of each row, float64, above 0.
    """
    solution_RD = fixed.vector_ND.new_zeros(len(histories), fixed.vector_ND.shape[1])
    length_R, order_R = torch.sort(histories.lengths(), stable=True)
    lengths = length_R.tolist()  # sync
    shared_D = unobserved_weight * fixed.eigenvalue_D

    def solve_chunk(chunk: _Chunk) -> Tensor:
        rows = slice(*chunk)
        row_c, length_c = order_R[rows], length_R[rows]
        diagonal_cD = shared_D + ridge_R[row_c, None]
        index_cl = _pad_items(histories, row_c, length_c, lengths[rows.stop - 1], fixed.padding)
        by_items = index_cl.shape[1] < len(shared_D)
        solve = _solve_by_items if by_items else _solve_by_width
        rotated_cD, failure_c = solve(fixed.vector_ND, index_cl, length_c, diagonal_cD)
        solution_RD.index_copy_(0, row_c, rotated_cD @ fixed.basis_DD.T)
        return failure_c.count_nonzero()

    numbers = LIMITS[histories.device.type].system_numbers
    chunks = list(_chunks(lengths, solution_RD.shape[1], numbers))
    failures = list(parallel_map(solve_chunk, chunks, histories.device))
    if failures and (num_failures := int(torch.stack(failures).sum())):  # sync
        raise TrainingError(
            f"the systems of {num_failures:,} of {len(histories):,} rows cannot be solved in "
            "float32; raise --regularization"
        )
    return solution_RD


def _chunks(lengths: list[int], width: int, numbers: int) -> Iterator[_Chunk]:
    """First row and end of each chunk, for rows of ascending lengths without the empty ones.

    A chunk takes at most ``numbers``, or is one row; its rows are of about one length.
    """

    def num_taken(stop: int) -> int:
        return (stop - start) * max(lengths[stop - 1], width) * width

    start = bisect_right(lengths, 0)
    while start < len(lengths):
        # A row is padded by a quarter and four items at most, so short rows share a chunk too.
        alike = bisect_right(lengths, lengths[start] * 5 // 4 + 4)
        fitting = bisect_right(range(start + 1, alike + 1), numbers, key=num_taken)
        stop = start + max(1, fitting)
        yield start, stop
        start = stop


def _pad_items(
    histories: HistoryTensors, row_c: Tensor, length_c: Tensor, longest: int, padding: int
) -> Tensor:
    """Return the items of some rows, [c, l], the shorter ones filled up by ``padding``."""
    place_l = torch.arange(longest, device=row_c.device)
    position_cl = histories.offsets[row_c, None] + place_l
    # Places past a row's end are read from the next rows, or the last entry, and filled below.
    position_cl.clamp_(max=histories.item_index.numel() - 1)
    item_cl = histories.item_index.index_select(0, position_cl.flatten()).view_as(position_cl)
    return item_cl.masked_fill_(place_l >= length_c[:, None], padding)


def _solve_by_items(
    vector_ND: Tensor, index_cl: Tensor, length_c: Tensor, diagonal_cD: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the solution, [c, D], and the failure of each row, by a system of its items."""
    # Y = X C^-1/2 of the module's formula; the system is 1 + Y Y'.
    scale_cD = diagonal_cD.rsqrt().to(vector_ND.dtype)
    whitened_clD = _gather(vector_ND, index_cl).mul_(scale_cD[:, None])
    system_cll = torch.bmm(whitened_clD, whitened_clD.mT)
    system_cll.diagonal(dim1=1, dim2=2).add_(1.0)
    position_l = torch.arange(index_cl.shape[1], device=index_cl.device)
    is_item_cl = (position_l < length_c[:, None]).to(vector_ND.dtype)
    # r = (1 + YY')^-1 1 = 1 - Xw: what the score of each item lacks of 1. A padded item has a row
    # of zeros, so its equation is r = 0.
    residual_cl, failure_c = solve_systems(system_cll, is_item_cl)
    whitened_cD = torch.bmm(residual_cl[:, None], whitened_clD)[:, 0]
    return whitened_cD.mul_(scale_cD), failure_c


def _solve_by_width(
    vector_ND: Tensor, index_cl: Tensor, length_c: Tensor, diagonal_cD: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve as `_solve_by_items`, by a system of the width; gather a row's items piece by piece."""
    width = vector_ND.shape[1]
    system_cDD: Tensor | None = None
    sum_cD = vector_ND.new_zeros(len(index_cl), width)
    fitting = LIMITS[vector_ND.device.type].system_numbers // (len(index_cl) * width)
    at_once = max(width, min(fitting, TERMS_AT_ONCE))
    for index_cp in torch.split(index_cl, at_once, dim=1):
        gathered_cpD = _gather(vector_ND, index_cp)
        piece_cDD = torch.bmm(gathered_cpD.mT, gathered_cpD)
        system_cDD = piece_cDD if system_cDD is None else system_cDD.add_(piece_cDD)
        # Each row of an index of two dimensions is a bag; padding adds the row of zeros.
        sum_cD += F.embedding_bag(index_cp, vector_ND, mode="sum")
    assert system_cDD is not None
    # C + X'X; rows here have at least as many items as the width.
    system_cDD.diagonal(dim1=1, dim2=2).add_(diagonal_cD)
    return solve_systems(system_cDD, sum_cD)


def _gather(vector_ND: Tensor, index_cl: Tensor) -> Tensor:
    rows_SD = vector_ND.index_select(0, index_cl.flatten())
    return rows_SD.view(*index_cl.shape, vector_ND.shape[1])


def solve_systems(system_css: Tensor, right_cs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solutions, and for each system 0, or more if it is not positive definite.

    Only the upper triangles are read. The systems may be overwritten.
    """
    num_rows, size = right_cs.shape
    # LAPACK's order of memory: of a symmetric system nothing is transposed.
    factor_coo, order = system_css.mT, size
    if system_css.device.type == "cpu" and size > 96:
        # MKL factorizes by blocks from 129 rows on, and a column at a time before that: 51 and 112
        # microseconds for 136 and 128 rows, and 85 for 129, whose columns are not aligned. Columns
        # a multiple of 256 numbers apart compete for the same sets of the cache.
        order = max(136, (size + 7) // 8 * 8)
        order += 8 * (order % 256 == 0)
    if order > size:  # the added rows are the identity's
        factor_coo = system_css.new_empty(num_rows, order, order).mT
        factor_coo[:, :size, :size] = system_css.mT
        factor_coo[:, size:] = 0.0
        factor_coo.diagonal(dim1=1, dim2=2)[:, size:] = 1.0
        right_cs = F.pad(right_cs, (0, order - size))
    failure_c = torch.empty(num_rows, dtype=torch.int32, device=system_css.device)
    # `cholesky` raises, so the host would wait for a GPU; `cholesky_ex` writes failures into a
    # tensor.
    torch.linalg.cholesky_ex(factor_coo, out=(factor_coo, failure_c))
    # On a CPU, a twentieth of the time of `torch.cholesky_solve`.
    half_co1 = torch.linalg.solve_triangular(factor_coo, right_cs[:, :, None], upper=False)
    solution_co1 = torch.linalg.solve_triangular(factor_coo.mT, half_co1, upper=True)
    return solution_co1[:, :size, 0], failure_c

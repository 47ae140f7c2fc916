"""Inverse of a large symmetric positive definite matrix, in its place and with its progress.

Shape suffixes: N rows of the matrix, b rows of a block, n rows from the start of a block.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from foretaste.ops.limits import LIMITS


def invert_(matrix_NN: Tensor, progress: Callable[[int], None]) -> None:
    """Invert a symmetric positive definite matrix in its place; only its lower part is read.

    ``progress`` is called with the number of rows done. Raises `torch.linalg.LinAlgError` if the
    matrix is not positive definite.

    Block by block the matrix is swept (Goodnight 1979, *A Tutorial on the SWEEP Operator*). A sweep
    of block b writes the Schur complement of b into all other blocks, ``A_ob A_b⁻¹`` into the
    blocks between b and each other o, and ``-A_b⁻¹`` into b. Once all are swept, A is ``-A⁻¹``.
    That takes as many products as a Cholesky factor and its inverse, nearly all of them in matrix
    multiplications.
    """
    num_rows = len(matrix_NN)
    size = LIMITS[matrix_NN.device.type].inverse_rows
    blocks = [slice(at, min(at + size, num_rows)) for at in range(0, num_rows, size)]
    for block in blocks:
        # Only the lower part is kept, so the column above the block is read from the block's row.
        column_Nb = torch.cat([matrix_NN[block, : block.start].T, matrix_NN[block.start :, block]])
        inverse_bb = torch.cholesky_inverse(torch.linalg.cholesky(column_Nb[block]))
        swept_Nb = column_Nb @ inverse_bb
        for other in blocks:
            # The block's own row and column change too, and are overwritten below.
            rows = slice(other.start, num_rows)
            # The Schur complement A_oo - A_ob A_b^-1 A_bo. Only its lower part is computed: half
            # the products.
            matrix_NN[rows, other].addmm_(swept_Nb[rows], column_Nb[other].T, alpha=-1)
        matrix_NN[block, : block.start] = swept_Nb[: block.start].T
        matrix_NN[block.start :, block] = swept_Nb[block.start :]
        matrix_NN[block, block] = -inverse_bb
        progress(block.stop)
    for block in blocks:
        # From -A^-1 to A^-1, and the lower part mirrored into the upper.
        lower_nb = matrix_NN[block.start :, block].neg_()
        lower_nb[: len(lower_nb.T)].tril_().add_(lower_nb[: len(lower_nb.T)].tril(-1).T)
        matrix_NN[block, block.stop :] = lower_nb[len(lower_nb.T) :].T

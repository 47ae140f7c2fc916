"""iALS in plain operations: known users by their vectors, others by conjugate gradients.

Shape suffixes: B users, U all users, I items, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.models.scorer import Scorer
from foretaste.ops.least_squares import FixedVectors

_TOLERANCE = 1e-7
"""Most error left, relative to the error of zero, in the norm that the system defines."""

_MOST_STEPS = 256
"""Most steps: a program writes out each of them."""

_TINY = 1e-30


class VectorScorer(Scorer):
    """The product of a user's vector with the items' vectors."""

    def __init__(self, user_UD: Tensor, item_ID: Tensor) -> None:
        super().__init__()
        self.user_UD: Tensor
        self.item_ID: Tensor
        self.register_buffer("user_UD", user_UD)
        self.register_buffer("item_ID", item_ID)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        assert user_index_B is not None
        return self.user_UD.index_select(0, user_index_B) @ self.item_ID.T


class FoldInScorer(Scorer):
    """Vectors that conjugate gradients find for histories, and their products with the items'.

    The system of `foretaste.ops.least_squares` is ``(1 + Y'Y) C^1/2 w = Y' 1``, whose left side has
    a condition number of at most ``1 + max(e / C)``, for e the eigenvalues of the items' Gramian.
    The condition number gives the number of steps, enough for any history (Saad 2003, "Iterative
    Methods for Sparse Linear Systems", section 6.11.3). It is at most twice the width; in exact
    arithmetic the width would do.
    """

    def __init__(self, items: FixedVectors, unobserved_weight: float, ridge: float) -> None:
        """Raise UnsupportedError if more steps are needed than a program has room for."""
        super().__init__()
        item_ID = items.vector_ND[:-1].clone()
        self.num_pairs, self.ridge = unobserved_weight * len(item_ID), ridge
        shared_D = unobserved_weight * items.eigenvalue_D
        least_D = shared_D + ridge * self.num_pairs
        condition = 1.0 + float((items.eigenvalue_D / least_D).max())
        self.num_steps = min(_steps(condition), 2 * item_ID.shape[1])
        if self.num_steps > _MOST_STEPS:
            raise UnsupportedError(
                f"folding in with this ials takes up to {self.num_steps:,} steps of conjugate "
                f"gradients, and a program has room for {_MOST_STEPS}; train it with a larger "
                "--unobserved-weight or --regularization"
            )
        self.item_ID: Tensor
        self.shared_D: Tensor
        self.register_buffer("item_ID", item_ID)
        self.register_buffer("shared_D", shared_D.float())

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        count_B1 = known_BI.sum(1, keepdim=True) + self.num_pairs
        # C^-1/2, with the ridge of a row by its items and all its pairs.
        scale_BD = (self.shared_D + self.ridge * count_B1).rsqrt()
        residual_BD = direction_BD = (known_BI @ self.item_ID) * scale_BD
        solution_BD = torch.zeros_like(residual_BD)
        square_B1 = residual_BD.square().sum(1, keepdim=True)
        for _ in range(self.num_steps):
            # Y'Y p by the scores of all items, of which those outside the history become zero.
            scores_BI = (direction_BD * scale_BD) @ self.item_ID.T
            image_BD = direction_BD + (scores_BI * known_BI) @ self.item_ID * scale_BD
            curvature_B1 = (direction_BD * image_BD).sum(1, keepdim=True)
            step_B1 = square_B1 / curvature_B1.clamp(min=_TINY)
            solution_BD = solution_BD + step_B1 * direction_BD
            residual_BD = residual_BD - step_B1 * image_BD
            next_B1 = residual_BD.square().sum(1, keepdim=True)
            direction_BD = residual_BD + next_B1 / square_B1.clamp(min=_TINY) * direction_BD
            square_B1 = next_B1
        return (solution_BD * scale_BD) @ self.item_ID.T


def _steps(condition: float) -> int:
    """Return steps after which ``2 ((root - 1) / (root + 1))^steps`` is below the tolerance."""
    root = math.sqrt(condition)
    if root == 1.0:
        return 1
    # (root - 1) / (root + 1) rounds to 1, and this does not.
    return math.ceil(math.log(_TOLERANCE / 2.0) / math.log1p(-2.0 / (root + 1.0)))

"""EASE: a linear item-to-item model in closed form (Steck 2019, arXiv 1905.03375).

Shape suffixes: B users, K candidates per user, I items of the catalogue, c users of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste._util.formatting import memory
from foretaste.errors import UnsupportedError
from foretaste.models.base import ClosedFormModel, UserState
from foretaste.models.baselines.config import EaseConfig
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.segments import sum_bags

_CELLS_AT_ONCE = 1 << 24
_FIT_BYTES = {"cpu": 20, "cuda": 28}
"""Of each item pair while fitting: float32 weights, and float64 matrices in the solver, two as
measured on a CPU and three on a GPU."""


class Ease(ClosedFormModel):
    """Scores an item by the summed weights towards it of the items in the history.

    With X the users' 0/1 histories, the weights W minimise ``|X - XW|² + l2 |W|²`` with a zero
    diagonal: for ``P = (XᵀX + l2)⁻¹`` they are ``W[i, j] = -P[i, j] / P[j, j]``.
    """

    name = "ease"
    config_class = EaseConfig
    memory_advice = (
        "keep fewer items (--min-item-users), or train vae or neumf, which grow with the number of "
        "items only"
    )

    def __init__(self, config: EaseConfig, num_users: int, num_items: int) -> None:
        super().__init__(config, num_users, num_items)
        self.weight_II: Tensor
        self.register_buffer("weight_II", torch.zeros(num_items, num_items))

    def training_bytes(self, device: torch.device) -> int:
        return self.num_items**2 * _FIT_BYTES[device.type]

    def fitting_note(self) -> str:
        size = f"{self.num_items:,}"
        needed = memory(self.training_bytes(self.device))
        return f"inverting a {size} × {size} matrix, which takes about {needed} of memory"

    @torch.no_grad()
    def fit(self, histories: HistoryTensors) -> None:
        """Fit to the training histories."""
        self.count_items(histories)
        self.weight_II.zero_()
        users_at_once = max(1, _CELLS_AT_ONCE // self.num_items)
        for start in range(0, len(histories), users_at_once):
            dense_cI = histories[start : start + users_at_once].to_dense()
            self.weight_II.addmm_(dense_cI.T, dense_cI)
        self.weight_II.diagonal().add_(self.config.l2)
        # In float64: a popular catalogue's Gram matrix is too steep for float32.
        precision_II = torch.cholesky_inverse(torch.linalg.cholesky(self.weight_II.double()))
        self.weight_II.copy_(precision_II.div_(-precision_II.diagonal().clone()))
        self.weight_II.fill_diagonal_(0.0)

    @torch.no_grad()
    def similarity(self, item_index_B: Tensor) -> Tensor:
        """Similarity [B, I] of items to every item: the learned weight towards it."""
        return self.weight_II[item_index_B]

    def item_vectors(self) -> Tensor:
        raise UnsupportedError(
            "ease has no vectors of items, only weights between them; train neumf or vae for them"
        )

    def _known_users(
        self, user_index_B: Tensor, histories: HistoryTensors
    ) -> tuple[HistoryTensors]:
        return (histories,)

    def _new_users(self, histories: HistoryTensors) -> tuple[HistoryTensors]:
        return (histories,)

    def _score_catalogue(self, state: UserState) -> Tensor:
        (histories,) = state.parts
        assert isinstance(histories, HistoryTensors)
        return sum_bags(self.weight_II, histories.item_index, histories.offsets)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        scores_BK = torch.empty(item_index_BK.shape, device=self.device)
        users_at_once = max(1, _CELLS_AT_ONCE // self.num_items)
        for start in range(0, len(state), users_at_once):
            rows = slice(start, start + users_at_once)
            scores_cI = self._score_catalogue(state[rows])
            scores_BK[rows] = scores_cI.gather(1, item_index_BK[rows].long())
        return scores_BK

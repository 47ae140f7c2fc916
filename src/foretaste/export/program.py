"""Module of plain tensor operations that computes a model's lists from histories.

Shape suffixes: B users, N entries of all histories, I items of the catalogue, K ranks of a list.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretaste.evaluation.ranking import ABSENT
from foretaste.models.base import RecommenderModel
from foretaste.models.scorer import ScorerInputs

NO_ITEM = -1
"""Item index of an empty place at the end of a list."""

INPUTS = ("history", "history_length", "user_index")
OUTPUTS = ("item_index", "score")


class ListProgram(nn.Module):
    """The k best items of each user, without those of the history.

    Items are ordered by score, then by item index. For a model that `scores_known_users_only`,
    users are given by index, and their histories only exclude items. Users unknown to the model
    are answered in popularity order.
    """

    def __init__(self, model: RecommenderModel, k: int) -> None:
        """Take the model's present weights; UnsupportedError if it has no plain operations."""
        super().__init__()
        self.takes_users = model.scores_known_users_only
        self.num_users, self.num_items = model.num_users, model.num_items
        self.k = min(k, model.num_items)
        self.scorer = model.scorer(known_users=self.takes_users)
        self.popularity_I: Tensor
        self.register_buffer("popularity_I", model.popularity())
        self.is_known_I: Tensor
        self.register_buffer("is_known_I", model.known_items())
        self.requires_grad_(False)  # otherwise a client's scores would need gradients

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return INPUTS if self.takes_users else INPUTS[:2]

    def num_bytes(self) -> int:
        """Return the number of bytes of the weights."""
        return sum(tensor.nbytes for tensor in self.state_dict().values())

    def example(self) -> tuple[Tensor, ...]:
        """Return the example inputs for two users."""
        length_B = torch.tensor([1, min(2, self.num_items)])
        history_N = torch.arange(3) % self.num_items
        user_index_B = torch.arange(2) % self.num_users
        return (history_N, length_B, user_index_B)[: len(self.inputs)]

    def forward(
        self, history_N: Tensor, history_length_B: Tensor, user_index_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the item indexes [B, K], int64, and scores [B, K], float32.

        Short lists end with `NO_ITEM` and minus infinity. All inputs are int64.

        Args:
            history_N: items of all histories, one history after the other; each oldest first for a
                model that uses the order, otherwise in any order.
            history_length_B: number of items of each history.
            user_index_B: users in [0, num_users), if the program takes users.
        """
        users = ScorerInputs(history_N, history_length_B, user_index_B, self.num_items)
        score_BI = self.scorer.scores(users)
        have_history_B1 = users.has_any(self.is_known_I)[:, None]
        score_BI = torch.where(have_history_B1, score_BI, self.popularity_I)
        score_BI = score_BI.masked_fill(users.known > 0.0, ABSENT)
        if torch.onnx.is_in_onnx_export():
            # ONNX's TopK puts equal scores in the order of their indexes. PyTorch's puts them in
            # any order, so a stable sort is needed there.
            score_BK, item_index_BK = score_BI.topk(self.k, dim=1)
        else:
            score_BI, item_index_BI = score_BI.sort(dim=1, descending=True, stable=True)
            score_BK, item_index_BK = score_BI[:, : self.k], item_index_BI[:, : self.k]
        return torch.where(score_BK == ABSENT, NO_ITEM, item_index_BK), score_BK

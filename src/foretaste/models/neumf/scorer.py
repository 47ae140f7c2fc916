"""NeuMF's logits of the catalogue for known users, in plain operations.

Shape suffixes: B users, U all users, I items, c items of a chunk, F factors, H and D widths of the
tower.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.models.scorer import Scorer, item_chunks
from foretaste.ops.neumf_loss.inputs import InteractionInputs


class InteractionScorer(Scorer):
    """The interaction of users, taken from a table of all, with the items chunk by chunk."""

    user_product_UF: Tensor
    item_product_IF: Tensor
    user_tower_UH: Tensor
    item_tower_IH: Tensor
    output_tower_D: Tensor
    output_bias_1: Tensor

    def __init__(self, inputs: InteractionInputs) -> None:
        """Keep the ``inputs`` of all users; nothing of a side whose width is zero."""
        super().__init__()
        self.num_items = inputs.num_items
        tensors = {"output_bias_1": inputs.output_bias_1}
        self.has_product = bool(inputs.item_product_IF.shape[1])
        if self.has_product:
            # h . (u * i) = (h * u) . i: multiplied here once, and not in each call.
            tensors["user_product_UF"] = inputs.user_product_BF * inputs.output_product_F
            tensors["item_product_IF"] = inputs.item_product_IF
        self.has_tower = bool(inputs.item_tower_IH.shape[1])
        if self.has_tower:
            tensors["user_tower_UH"] = inputs.user_tower_BH
            tensors["item_tower_IH"] = inputs.item_tower_IH
            tensors["output_tower_D"] = inputs.output_tower_D
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.detach())
        self.layers = nn.ParameterList(tensor.detach() for tensor in inputs.hidden)
        self.layers.requires_grad_(False)

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        assert user_index_B is not None
        parts: list[Tensor] = []
        if self.has_product:
            product_BF = self.user_product_UF.index_select(0, user_index_B)
            parts.append(product_BF @ self.item_product_IF.T)
        if self.has_tower:
            tower_BH = self.user_tower_UH.index_select(0, user_index_B)
            widths = [tower_BH.shape[1], *(len(bias) for bias in self.layers[1::2])]
            chunks = item_chunks(self.num_items, max(widths))
            parts.append(torch.cat([self._tower(tower_BH, items) for items in chunks], dim=1))
        return torch.stack(parts).sum(0) + self.output_bias_1

    def _tower(self, tower_BH: Tensor, items: slice) -> Tensor:
        """Return the tower's part of the logits of some items, [B, c]."""
        value_BcD = F.relu(tower_BH[:, None] + self.item_tower_IH[items])
        for weight, bias in zip(self.layers[::2], self.layers[1::2], strict=True):
            value_BcD = F.relu(F.linear(value_BcD, weight, bias))
        return value_BcD @ self.output_tower_D

"""NeuMF in the form of papers and tutorials: concatenate, run the tower, compare with labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.models.neumf.batches import InteractionBatch
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.dropout import keep_mask, keep_rate
from foretaste.ops.random import Purpose, stream_key


class PlainNeuMF(nn.Module):
    """The network of a `NeuMF`, one row per sample, with weights of its own in float64."""

    def __init__(self, model: NeuMF) -> None:
        super().__init__()
        self.dropout = model.dropout
        for name, parameter in model.named_parameters():
            copy = nn.Parameter(parameter.detach().double().clone())
            self.register_parameter(name.replace(".", "_"), copy)
        self.num_layers = len(model.tower)

    def logits(self, user_S: Tensor, item_S: Tensor, key: int | None = None) -> Tensor:
        """Logits of samples; ``key`` draws the step's dropout, None for no dropout."""
        product = F.embedding(user_S, self.user_factors) * F.embedding(item_S, self.item_factors)
        activation = torch.cat(
            [F.embedding(user_S, self.user_embedding), F.embedding(item_S, self.item_embedding)],
            dim=1,
        )
        for layer in range(self.num_layers):
            weight, bias = (getattr(self, f"tower_{layer}_{part}") for part in ("weight", "bias"))
            activation = F.relu(F.linear(activation, weight, bias))
            if key is not None:
                activation = self._dropped(activation, stream_key(key, Purpose.DROPOUT, layer))
        joined = torch.cat([product, activation], dim=1)
        return F.linear(joined, self.output_weight, self.output_bias).squeeze(1)

    def loss(self, batch: InteractionBatch, *, training: bool) -> Tensor:
        """Weighted sum of binary cross-entropies over the batch's samples."""
        shape = batch.item_index_BK.shape
        user_S = batch.user_index_B[:, None].expand(shape).reshape(-1)
        logits_S = self.logits(
            user_S, batch.item_index_BK.reshape(-1), int(batch.dropout_key) if training else None
        )
        label_S = batch.label_BK.expand(shape).reshape(-1).double()
        weight_S = batch.weight_BK.expand(shape).reshape(-1).double()
        return F.binary_cross_entropy_with_logits(
            logits_S, label_S, weight=weight_S, reduction="sum"
        )

    def _dropped(self, activation: Tensor, key: int) -> Tensor:
        keep = keep_mask(key, *activation.shape, self.dropout, activation.device)
        return activation * keep / keep_rate(self.dropout)

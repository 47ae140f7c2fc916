"""Scores of independent (user, item) pairs by NeuMF, with the tables projected or not.

Shape suffixes: B pairs, c some of them, I items, U users, H width after the tower's split first
layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.models.neumf.model import NeuMF
from foretaste.ops.interaction import InteractionInputs, chunked

_PAIRS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}
"""Users' rows are gathered for so many: on a CPU what is larger is mapped anew for every call."""


@dataclass(frozen=True, eq=False)
class ProjectedTables:
    """Every user and every item through its half of the tower's first layer."""

    user_tower_UH: Tensor
    item_tower_IH: Tensor


class PairScorer:
    """Scores pairs of a trained model, on its device; the tower's products in one dtype."""

    def __init__(self, model: NeuMF, compute_dtype: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.compute_dtype = compute_dtype
        first = model.tower[0]
        assert isinstance(first, nn.Linear)
        self._user_weight_HE, self._item_weight_HE = first.weight.detach().chunk(2, dim=1)
        self._item_bias_H = first.bias.detach()
        self._hidden = tuple(
            parameter.detach() for layer in model.tower[1:] for parameter in layer.parameters()
        )

    @torch.no_grad()
    def project(self) -> ProjectedTables:
        """What is computed once when the weights stay as they are."""
        return ProjectedTables(
            self._projected(self.model.user_embedding, self._user_weight_HE, None),
            self._projected(self.model.item_embedding, self._item_weight_HE, self._item_bias_H),
        )

    @torch.no_grad()
    def projected(self, tables: ProjectedTables, user_B: Tensor, item_B: Tensor) -> Tensor:
        """Logits [B] from projected tables."""
        item_factors = self.model.item_factors.detach()

        def score(user_c: Tensor, item_c: Tensor) -> Tensor:
            user_tower_cH = tables.user_tower_UH.index_select(0, user_c)
            return self._logits(user_c, user_tower_cH, item_factors, tables.item_tower_IH, item_c)

        return self._in_parts(score, user_B, item_B)

    @torch.no_grad()
    def unprojected(self, user_B: Tensor, item_B: Tensor) -> Tensor:
        """Logits [B] from the tables as they were trained.

        The items projected are those of the pairs, or the whole table where that is smaller.
        """
        model = self.model
        factors, embedding = model.item_factors.detach(), model.item_embedding.detach()
        if len(item_B) < model.num_items:
            factors, embedding = (table.index_select(0, item_B) for table in (factors, embedding))
            item_B = torch.arange(len(item_B), device=item_B.device)
        item_tower_H = self._projected(embedding, self._item_weight_HE, self._item_bias_H)

        def score(user_c: Tensor, item_c: Tensor) -> Tensor:
            user_embedding_cE = model.user_embedding.index_select(0, user_c)
            user_tower_cH = self._projected(user_embedding_cE, self._user_weight_HE, None)
            return self._logits(user_c, user_tower_cH, factors, item_tower_H, item_c)

        return self._in_parts(score, user_B, item_B)

    def _in_parts(
        self, score: Callable[[Tensor, Tensor], Tensor], user_B: Tensor, item_B: Tensor
    ) -> Tensor:
        at_once = _PAIRS_AT_ONCE[user_B.device.type]
        parts = zip(*(torch.split(index_B, at_once) for index_B in (user_B, item_B)), strict=True)
        return torch.cat([score(user_c, item_c) for user_c, item_c in parts])

    def _projected(self, embedding: Tensor, weight_HE: Tensor, bias_H: Tensor | None) -> Tensor:
        dtype = self.compute_dtype or embedding.dtype
        bias_H = None if bias_H is None else bias_H.to(dtype)
        return F.linear(embedding.to(dtype), weight_HE.to(dtype), bias_H)

    def _logits(
        self,
        user_B: Tensor,
        user_tower_BH: Tensor,
        item_product: Tensor,
        item_tower: Tensor,
        item_B: Tensor,
    ) -> Tensor:
        model = self.model
        output = model.output.weight.detach()[0]
        factors = model.user_factors.shape[1]
        inputs = InteractionInputs(
            user_product_BF=model.user_factors.detach().index_select(0, user_B),
            item_product_IF=item_product,
            user_tower_BH=user_tower_BH,
            item_tower_IH=item_tower,
            output_product_F=output[:factors],
            output_tower_D=output[factors:],
            output_bias_1=model.output.bias.detach(),
            hidden=self._hidden,
        )
        logits_B1 = chunked.logits(inputs, item_B[:, None], compute_dtype=self.compute_dtype)
        return logits_B1.squeeze(1)

"""Scores of independent (user, item) pairs by NeuMF, with the tables projected or not.

Shape suffixes: B pairs, c some of them, R rows of a table, F factors, E embedding width, H width
after the tower's split first layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.models.neumf.model import NeuMF
from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss.inputs import InteractionInputs

_PAIRS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}
"""Users' rows are gathered for so many: on a CPU what is larger is mapped anew for every call."""

_Tables = tuple[Tensor, Tensor]
"""Factors [R, F] of users or of items, and rows of the tower: embeddings, or their projections."""


class PairScorer:
    """Scores pairs of a trained model, on its device; the tower's products in one dtype."""

    def __init__(self, model: NeuMF, compute_dtype: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.compute_dtype = compute_dtype
        weight_HE, bias_H, *self._hidden = (
            parameter.detach().to(compute_dtype or parameter.dtype)
            for layer in model.tower
            for parameter in layer.parameters()
        )
        user_weight_HE, item_weight_HE = weight_HE.chunk(2, dim=1)
        self._user_half = (user_weight_HE, None)
        self._item_half = (item_weight_HE, bias_H)
        self._user_tables = (model.user_factors.detach(), model.user_embedding.detach())
        self._item_tables = (model.item_factors.detach(), model.item_embedding.detach())

    @torch.no_grad()
    def project(self) -> InteractionInputs:
        """Every user and every item projected: what is computed once while the weights stay."""
        return self._inputs(self._users(self._user_tables), self._items(self._item_tables))

    @torch.no_grad()
    def projected(self, everyone: InteractionInputs, user_B: Tensor, item_B: Tensor) -> Tensor:
        """Logits [B] from what `project` gave."""
        return self._in_parts(
            lambda user_c, item_c: self._logits(everyone, item_c, user_c), user_B, item_B
        )

    @torch.no_grad()
    def unprojected(self, user_B: Tensor, item_B: Tensor) -> Tensor:
        """Logits [B] from the tables as they were trained.

        The users and the items projected are those of the pairs, or all where those are fewer.
        """
        item_tables = self._item_tables
        if len(item_B) < self.model.num_items:
            item_tables = _rows(item_tables, item_B)
            item_B = torch.arange(len(item_B), device=item_B.device)
        items = self._items(item_tables)
        if len(user_B) >= self.model.num_users:
            everyone = self._inputs(self._users(self._user_tables), items)
            return self.projected(everyone, user_B, item_B)

        def score(user_c: Tensor, item_c: Tensor) -> Tensor:
            users = self._users(_rows(self._user_tables, user_c))
            return self._logits(self._inputs(users, items), item_c)

        return self._in_parts(score, user_B, item_B)

    def _in_parts(
        self, score: Callable[[Tensor, Tensor], Tensor], user_B: Tensor, item_B: Tensor
    ) -> Tensor:
        at_once = _PAIRS_AT_ONCE[user_B.device.type]
        if len(user_B) <= at_once:
            return score(user_B, item_B)
        parts = zip(*(torch.split(index_B, at_once) for index_B in (user_B, item_B)), strict=True)
        return torch.cat([score(user_c, item_c) for user_c, item_c in parts])

    def _users(self, tables: _Tables) -> _Tables:
        return tables[0], self._projection(tables[1], *self._user_half)

    def _items(self, tables: _Tables) -> _Tables:
        return tables[0], self._projection(tables[1], *self._item_half)

    def _projection(self, embedding_RE: Tensor, weight_HE: Tensor, bias_H: Tensor | None) -> Tensor:
        return F.linear(embedding_RE.to(weight_HE.dtype), weight_HE, bias_H)

    def _inputs(self, users: _Tables, items: _Tables) -> InteractionInputs:
        output = self.model.output.weight.detach()[0]
        factors = self.model.user_factors.shape[1]
        return InteractionInputs(
            user_product_BF=users[0],
            item_product_IF=items[0],
            user_tower_BH=users[1],
            item_tower_IH=items[1],
            output_product_F=output[:factors],
            output_tower_D=output[factors:],
            output_bias_1=self.model.output.bias.detach(),
            hidden=tuple(self._hidden),
        )

    def _logits(
        self, inputs: InteractionInputs, item_B: Tensor, user_B: Tensor | None = None
    ) -> Tensor:
        logits_B1 = neumf_loss.logits(
            inputs, item_B[:, None], user_B, compute_dtype=self.compute_dtype
        )
        return logits_B1.squeeze(1)


def _rows(tables: _Tables, index_B: Tensor) -> _Tables:
    factors, embedding = tables
    return factors.index_select(0, index_B), embedding.index_select(0, index_B)

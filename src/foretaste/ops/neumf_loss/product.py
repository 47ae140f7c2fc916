"""GMF's interaction, which has no tower: value and gradients of a step, nothing gathered on a CPU.

A logit is the product of an item's factors with the row's weighted ones. So logits are a matrix
product, computed for the candidates only, and gradients are sums weighted by the logits' slopes: of
items' factors for each row, of rows' weighted factors for each item.

Shape suffixes: B rows, K candidates per row, N shared ones, I items, F factors, S samples; b rows
of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.dense import candidate_products
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples
from foretaste.ops.segments import Segments, sum_bags

_SAMPLES_AT_ONCE = {"cpu": 1 << 19, "cuda": 1 << 20}
"""As many as a cache has room for: they are sorted by item, and all items summed, once for each."""

_DENSE_ITEMS = 8
"""Items of the catalogue for each candidate of a row, at most, to write a slope for every item: a
product with so many zeros takes a CPU about as long as sorting the candidates."""


def value_and_gradients(
    inputs: InteractionInputs, samples: Samples
) -> tuple[Tensor, InteractionInputs]:
    """The loss and the gradient of every input, block after block of rows."""
    shape, table_IF = samples.item_index_BK.shape, inputs.item_product_IF
    label_BK, weight_BK = samples.label_BK.expand(shape), samples.weight_BK.expand(shape)
    weighted_BF = inputs.user_product_BF * inputs.output_product_F
    by_row_BF, by_item_IF = torch.empty_like(weighted_BF), None
    value, by_bias_1 = table_IF.new_zeros(()), torch.zeros_like(inputs.output_bias_1)
    kind = _Shared if samples.shares_negatives else _Own
    rows_at_once = max(1, _SAMPLES_AT_ONCE[inputs.device.type] // max(1, shape[1]))
    for start in range(0, shape[0], rows_at_once):
        rows = slice(start, start + rows_at_once)
        candidates = kind(table_IF, samples.item_index_BK[rows])
        logits_bK = candidates.products(weighted_BF[rows]).add_(inputs.output_bias_1)
        loss, slope_bK = samples.objective.with_slopes(logits_bK, label_BK[rows], weight_BK[rows])
        value += loss
        by_bias_1 += slope_bK.sum()
        by_row_BF[rows] = candidates.sums_by_row(slope_bK)
        if table_IF.requires_grad:
            sums_IF = candidates.sums_by_item(slope_bK, weighted_BF[rows])
            by_item_IF = sums_IF if by_item_IF is None else by_item_IF.add_(sums_IF)
    gradients = InteractionInputs(
        user_product_BF=by_row_BF * inputs.output_product_F,
        item_product_IF=torch.zeros_like(table_IF) if by_item_IF is None else by_item_IF,
        user_tower_BH=torch.zeros_like(inputs.user_tower_BH),
        item_tower_IH=torch.zeros_like(inputs.item_tower_IH),
        output_product_F=(by_row_BF * inputs.user_product_BF).sum(0),
        output_tower_D=torch.zeros_like(inputs.output_tower_D),
        output_bias_1=by_bias_1,
        hidden=tuple(torch.zeros_like(tensor) for tensor in inputs.hidden),
    )
    return value, gradients


class _Own:
    """Candidates of a row's own."""

    def __init__(self, table_IF: Tensor, index_bK: Tensor) -> None:
        self.table_IF, self.index_bK = table_IF, index_bK

    def products(self, weighted_bF: Tensor) -> Tensor:
        """Each row's factors times those of its candidates, [b, K]."""
        return candidate_products(weighted_bF, self.table_IF, self.index_bK)

    def sums_by_row(self, slope_bK: Tensor) -> Tensor:
        """The candidates' factors, weighted and summed for each row: [b, F]."""
        num_rows, num_candidates = slope_bK.shape
        offsets = torch.arange(num_rows + 1, device=slope_bK.device) * num_candidates
        return sum_bags(self.table_IF, self.index_bK.reshape(-1), offsets, slope_bK.reshape(-1))

    def sums_by_item(self, slope_bK: Tensor, weighted_bF: Tensor) -> Tensor:
        """The rows' factors, weighted and summed for each item: [I, F]."""
        num_rows, num_candidates = slope_bK.shape
        num_items = len(self.table_IF)
        if slope_bK.device.type == "cpu" and num_items <= _DENSE_ITEMS * num_candidates:
            slope_bI = slope_bK.new_zeros(num_rows, num_items)
            return slope_bI.scatter_add_(1, self.index_bK.long(), slope_bK).T @ weighted_bF
        segments = Segments(self.index_bK.reshape(-1), num_items)
        row_b = torch.arange(len(slope_bK), dtype=torch.int32, device=slope_bK.device)
        row_S = row_b[:, None].expand_as(slope_bK).reshape(-1)
        return segments.sum(weighted_bF, row_S, weight_S=slope_bK.reshape(-1))


class _Shared:
    """A candidate of each row's own, then the same ones for all: dense products."""

    def __init__(self, table_IF: Tensor, index_bK: Tensor) -> None:
        self.own_b, self.index_N = index_bK[:, 0], index_bK[0, 1:]
        self.table_bF = table_IF.index_select(0, self.own_b)
        self.table_NF = table_IF.index_select(0, self.index_N)
        self.num_items = len(table_IF)

    def products(self, weighted_bF: Tensor) -> Tensor:
        logits_bK = weighted_bF.new_empty(len(weighted_bF), 1 + len(self.index_N))
        torch.mm(weighted_bF, self.table_NF.T, out=logits_bK[:, 1:])
        torch.sum(weighted_bF * self.table_bF, dim=1, out=logits_bK[:, 0])
        return logits_bK

    def sums_by_row(self, slope_bK: Tensor) -> Tensor:
        sum_bF = self.table_bF * slope_bK[:, :1]
        return sum_bF.addmm_(slope_bK[:, 1:], self.table_NF)

    def sums_by_item(self, slope_bK: Tensor, weighted_bF: Tensor) -> Tensor:
        shared_NF = slope_bK[:, 1:].T @ weighted_bF
        segments = Segments(self.own_b, self.num_items)
        by_item_IF = segments.sum(weighted_bF * slope_bK[:, :1])
        # no item is there twice, so that nothing is added in an order
        return by_item_IF.index_add_(0, self.index_N, shared_NF)

"""The interaction in chunks that fit a cache, value and gradients in one pass.

Nothing is kept for backward: each chunk of rows runs forward and backward by hand, and its
[samples, width] activations stay in the cache. Gradients of the gathered item rows are the
exception. They are stored for a block of chunks and then summed item by item. That is several times
faster than scattering each chunk, and always adds in the same order. Without a tower there are no
activations, and `product` computes all of it.

Shape suffixes: B rows, K candidates per row, S samples, I items, F factors, H and D tower widths;
c for a chunk (of rows or items), b for a block of chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.buffers import Buffers
from foretaste.ops.neumf_loss import product
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout, loss_scale_of
from foretaste.ops.neumf_loss.tower import Tower, accumulator
from foretaste.ops.segments import Segments


@torch.no_grad()
def value_and_gradients(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
    buffers: Buffers | None = None,
) -> tuple[Tensor, InteractionInputs]:
    """Return the loss and the gradients by inputs; by items and weights only if requested."""
    if inputs.item_tower_IH.shape[1]:
        dtype = compute_dtype or inputs.item_tower_IH.dtype
        return _Pass(inputs, samples, dropout, dtype, buffers or Buffers()).run()
    return product.value_and_gradients(inputs, samples)


@torch.no_grad()
def logits(inputs: InteractionInputs, item_index_BK: Tensor) -> Tensor:
    """Return the logits of `reference.logits` without dropout or gradients, in bounded memory."""
    weighted_BF = inputs.user_product_BF * inputs.output_product_F
    logits_BK = weighted_BF.new_empty(item_index_BK.shape)
    tower = _scoring_tower(inputs)
    pairs_at_once = inputs.limits.pairs
    for rows in _slices(inputs.num_rows, item_index_BK.shape[1], pairs_at_once):
        index_cK = item_index_BK[rows]
        product_cKF = _gather(inputs.item_product_IF, index_cK)
        torch.bmm(product_cKF, weighted_BF[rows, :, None], out=logits_BK[rows, :, None])
        tower_cKH = _gather(inputs.item_tower_IH, index_cK)
        tower_cKH += inputs.user_tower_BH[rows, None]
        tower_cKH.relu_()
        _add_tower_logits(tower, tower_cKH, logits_BK[rows])
    return logits_BK.add_(inputs.output_bias_1)


@torch.no_grad()
def catalogue_logits(inputs: InteractionInputs) -> Tensor:
    """Return logits [B, I] of every item for every row; beside the result, memory stays bounded."""
    weighted_BF = inputs.user_product_BF * inputs.output_product_F
    logits_BI = torch.addmm(inputs.output_bias_1, weighted_BF, inputs.item_product_IF.T)
    tower = _scoring_tower(inputs)
    pairs_at_once = inputs.limits.pairs
    num_pairs = min(logits_BI.numel(), pairs_at_once)
    tower_SH = inputs.item_tower_IH.new_empty(num_pairs, tower.width)
    for rows in _slices(inputs.num_rows, inputs.num_items, pairs_at_once):
        for items in _slices(inputs.num_items, rows.stop - rows.start, pairs_at_once):
            # Several rows are one chunk of all items, and a row is cut only if it is alone:
            # `_add_tower_logits` needs both contiguous.
            logits_cK = logits_BI[rows, items]
            tower_cKH = tower_SH[: logits_cK.numel()].view(*logits_cK.shape, tower.width)
            item_tower_KH, user_tower_cH = inputs.item_tower_IH[items], inputs.user_tower_BH[rows]
            torch.add(item_tower_KH, user_tower_cH[:, None], out=tower_cKH).relu_()
            _add_tower_logits(tower, tower_cKH, logits_cK)
    return logits_BI


def _add_tower_logits(tower: Tower, activation_cKH: Tensor, logits_cK: Tensor) -> None:
    """Add the tower's share to contiguous logits; the activations are overwritten."""
    activation_SD = tower.forward(activation_cKH.flatten(0, 1))[-1]
    logits_cK.view(-1).addmv_(activation_SD.to(tower.output_D.dtype), tower.output_D)


def _scoring_tower(inputs: InteractionInputs) -> Tower:
    pairs_at_once = inputs.limits.pairs
    return Tower(inputs, None, inputs.item_tower_IH.dtype, pairs_at_once)


class _Pass:
    """One pass over all rows of a step: the loss and the gradient of every input."""

    def __init__(
        self,
        inputs: InteractionInputs,
        samples: Samples,
        dropout: TowerDropout | None,
        dtype: torch.dtype,
        buffers: Buffers,
    ) -> None:
        shape = samples.item_index_BK.shape
        self.inputs = inputs
        self.buffers = buffers
        self.item_index_BK = samples.item_index_BK
        self.label_BK = samples.label_BK.expand(shape)
        self.weight_BK = samples.weight_BK.expand(shape)
        self.objective = samples.objective
        self.num_candidates = shape[1]
        max_samples = _rows_at_once(shape[1], inputs.limits.samples) * shape[1]
        self.tower = Tower(inputs, dropout, dtype, min(max_samples, shape.numel()))
        self.item_tower_IH = inputs.item_tower_IH.to(dtype)
        self.user_tower_BH = inputs.user_tower_BH.to(dtype)
        self.needs_items = (
            inputs.item_tower_IH.requires_grad or inputs.item_product_IF.requires_grad
        )
        to_be_summed = inputs.output_bias_1.new_empty(0)
        self.total = InteractionInputs(
            user_product_BF=self._unset("user product", inputs.user_product_BF),
            item_product_IF=to_be_summed,
            user_tower_BH=self._unset("user tower", inputs.user_tower_BH),
            item_tower_IH=to_be_summed,
            output_product_F=accumulator(inputs.output_product_F),
            output_tower_D=accumulator(inputs.output_tower_D),
            output_bias_1=accumulator(inputs.output_bias_1),
            hidden=tuple(self.tower.gradients),
        )
        self.loss = self.total.output_bias_1.new_zeros(())
        # fp16 rounds what is below 3e-8 to zero, so slopes are scaled up before their products, and
        # their sums in float32 back down.
        self.loss_scale_2 = loss_scale_of(samples.weight_BK) if dtype == torch.float16 else None

    def run(self) -> tuple[Tensor, InteractionInputs]:
        limits = self.inputs.limits
        by_items = limits.block_samples_per_item * self.inputs.num_items
        block_samples = max(limits.block_samples, min(by_items, limits.most_block_samples))
        by_item = None
        for rows in _slices(self.inputs.num_rows, self.num_candidates, block_samples):
            sums = self._block(rows)
            by_item = sums if by_item is None else tuple(map(Tensor.add_, by_item, sums))
        if self.needs_items:
            tables = self.inputs.item_product_IF, self.inputs.item_tower_IH
            product_IF, tower_IH = by_item or map(accumulator, tables)
            self.total = replace(self.total, item_product_IF=product_IF, item_tower_IH=tower_IH)
        if self.loss_scale_2 is not None:
            for total in self.total.tensors():
                total.mul_(self.loss_scale_2[1])
        return self.loss, self.total

    def _block(self, rows: slice) -> tuple[Tensor, ...]:
        """Run the chunks of a block, then sum what they wrote down by user row and by item.

        Returns the gradients of the items' product and tower sides, if they are needed.
        """
        num_rows, total = rows.stop - rows.start, self.total
        shape = (num_rows, self.num_candidates)
        tower_bKH = self._empty("tower", (*shape, self.tower.width), self.tower.dtype)
        slopes, weighted = [], []
        chunk_samples = self.inputs.limits.samples
        for chunk in _slices(num_rows, self.num_candidates, chunk_samples):
            chunk_rows = slice(rows.start + chunk.start, rows.start + chunk.stop)
            weighted_cF, slope_cK = self._chunk(chunk_rows, tower_bKH[chunk])
            slopes.append(slope_cK)
            weighted.append(weighted_cF)
        # The first layer is relu(user + item): one gradient serves both, summed over a row's
        # candidates for the user, and over an item's samples for the item.
        total.user_tower_BH[rows] = _sum_candidates(tower_bKH)
        if not self.needs_items:
            return ()
        segments = Segments(self.item_index_BK[rows].reshape(-1), self.inputs.num_items)
        # a sample's gradient is its row's weighted factors times its slope
        row_S = torch.arange(tower_bKH.shape[0] * self.num_candidates, device=tower_bKH.device)
        row_S //= self.num_candidates
        sums = (
            segments.sum(torch.cat(weighted), row_S, weight_S=torch.cat(slopes).view(-1)),
            segments.sum(tower_bKH.flatten(0, 1)),
        )
        return tuple(one.to(torch.promote_types(one.dtype, torch.float32)) for one in sums)

    def _unset(self, name: str, tensor: Tensor) -> Tensor:
        """Return memory for the gradient of users' rows, each of which is written exactly once."""
        return self._empty(name, tensor.shape, torch.promote_types(tensor.dtype, torch.float32))

    def _empty(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return self.buffers.empty(f"interaction {name}", shape, dtype, self.inputs.device)

    def _chunk(self, rows: slice, tower_gradient_cKH: Tensor) -> tuple[Tensor, Tensor]:
        """Forward and backward of some rows, but for the gradients of items.

        Writes the gradient of the tower's preactivations. Returns the rows' weighted factors and
        the logits' slopes, whose product is the gradient of the items' product side.
        """
        inputs, total = self.inputs, self.total
        index_cK = self.item_index_BK[rows]
        # W [u; i] = W_u u + W_i i: both sides of the first layer were projected once for the step,
        # so a sample costs a gather and a sum in place of a product.
        tower_cKH = _gather(self.item_tower_IH, index_cK)
        tower_cKH += self.user_tower_BH[rows, None]
        tower_cKH.relu_()
        # Dropout depends on a sample's number in the step, so other chunks drop the same
        # activations.
        first_sample = rows.start * self.num_candidates
        activations = self.tower.forward(tower_cKH.flatten(0, 1), first_sample)
        # Compute in float32 up to the tower's backward: only the tower's products use half
        # precision.
        last_SD = activations[-1].to(total.output_tower_D.dtype)
        product_cKF = _gather(inputs.item_product_IF, index_cK)
        user_product_cF = inputs.user_product_BF[rows]
        weighted_cF = user_product_cF * inputs.output_product_F
        # h . (u * i) = (h * u) . i: the output weights h go into the row once, not into each
        # sample.
        logits_cK = torch.bmm(product_cKF, weighted_cF[:, :, None]).squeeze(2)
        logits_cK += (last_SD @ self.tower.output_D).view_as(logits_cK)
        logits_cK += inputs.output_bias_1

        label_cK, weight_cK = self.label_BK[rows], self.weight_BK[rows]
        loss, slope_cK = self.objective.with_slopes(logits_cK, label_cK, weight_cK)
        self.loss += loss
        if self.loss_scale_2 is not None:
            slope_cK.mul_(self.loss_scale_2[0])
        slope_S = slope_cK.view(-1)
        total.output_bias_1.add_(slope_S.sum())
        # `scale` as for the hidden weights: `output_D` is that many times the parameter.
        total.output_tower_D.add_(slope_S @ last_SD, alpha=self.tower.scale)
        # d loss / d u = w * sum over k of slope_k i_k, with w the output weights: one product of
        # [1, K] and [K, F] for the K samples of a row.
        by_row_cF = torch.bmm(slope_cK[:, None], product_cKF).squeeze(1)
        total.output_product_F.add_((by_row_cF * user_product_cF).sum(0))
        total.user_product_BF[rows] = by_row_cF * inputs.output_product_F
        self.tower.backward(activations, slope_S, tower_gradient_cKH.flatten(0, 1))
        return weighted_cF, slope_cK


def _gather(table_ID: Tensor, index_cK: Tensor) -> Tensor:
    """Return rows of a table, [c, K, D], as fast as `index_select`, which takes one dimension."""
    rows_SD = table_ID.index_select(0, index_cK.reshape(-1))
    return rows_SD.view(*index_cK.shape, table_ID.shape[1])


def _sum_candidates(rows_bKH: Tensor) -> Tensor:
    """Return the sum over K, by the kernel that is fastest for short half-precision groups."""
    num_rows, num_candidates, width = rows_bKH.shape
    if width == 0:
        return rows_bKH.new_zeros(num_rows, 0)
    index_bK = torch.arange(num_rows * num_candidates, device=rows_bKH.device)
    return F.embedding_bag(
        index_bK.view(num_rows, num_candidates), rows_bKH.flatten(0, 1), mode="sum"
    )


def _slices(num_rows: int, samples_per_row: int, samples_at_once: int) -> Iterator[slice]:
    rows_at_once = _rows_at_once(samples_per_row, samples_at_once)
    for start in range(0, num_rows, rows_at_once):
        yield slice(start, min(start + rows_at_once, num_rows))


def _rows_at_once(samples_per_row: int, samples_at_once: int) -> int:
    return max(1, samples_at_once // max(1, samples_per_row))

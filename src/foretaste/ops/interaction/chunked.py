"""The interaction in chunks that fit a cache, value and gradients in one pass.

What the plain form keeps for backward is never kept: each chunk of rows runs forward and backward
by hand, gradients add up, and the [samples, width] activations live in the cache. Relu and dropout
share one mask (an activation is zero where either stopped it), and dropout's scale is folded into
the layer that follows.

Shape suffixes: B rows, K candidates per row, S = B * K samples, I items, F factors, H and D tower
widths; c for a chunk (of rows or items).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.dropout import keep_mask, keep_rate
from foretaste.ops.interaction.reference import layer_key
from foretaste.ops.interaction.types import InteractionInputs, Samples, TowerDropout
from foretaste.ops.known_gradients import with_gradients

_SAMPLES_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 18}


def loss(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `reference.loss`, differentiable once; the tower's products in ``compute_dtype``.

    Sums are kept in float32 at least, whatever the products are computed in.
    """
    dtype = compute_dtype or inputs.item_tower_IH.dtype
    with torch.no_grad():
        value, gradients = _Pass(inputs, dropout, dtype).run(samples)
    return with_gradients(value, inputs.tensors(), gradients)


@torch.no_grad()
def logits(inputs: InteractionInputs, item_index_BK: Tensor) -> Tensor:
    """As `reference.logits` without dropout or gradients, in bounded memory."""
    num_candidates = item_index_BK.shape[1]
    logits_BK = inputs.user_product_BF.new_empty(item_index_BK.shape)
    tower = _Tower(inputs, None, inputs.item_tower_IH.dtype)
    for start, stop in _chunks(inputs.num_rows, num_candidates, logits_BK.device):
        items = item_index_BK[start:stop].reshape(-1)
        item_tower = inputs.item_tower_IH.index_select(0, items).view(
            stop - start, num_candidates, tower.width
        )
        item_product = inputs.item_product_IF.index_select(0, items)
        logits_BK[start:stop] = _chunk_logits(
            inputs,
            tower,
            start,
            stop,
            item_product.view(stop - start, num_candidates, -1),
            item_tower,
        )
    return logits_BK


@torch.no_grad()
def catalogue_logits(inputs: InteractionInputs) -> Tensor:
    """Logits [B, I] of every item for every row; beside the result, memory stays bounded."""
    logits_BI = inputs.user_product_BF.new_empty(inputs.num_rows, inputs.num_items)
    tower = _Tower(inputs, None, inputs.item_tower_IH.dtype)
    for start, stop in _chunks(inputs.num_rows, inputs.num_items, logits_BI.device):
        for first, last in _chunks(inputs.num_items, stop - start, logits_BI.device):
            logits_BI[start:stop, first:last] = _chunk_logits(
                inputs,
                tower,
                start,
                stop,
                inputs.item_product_IF[first:last],
                inputs.item_tower_IH[first:last],
            )
    return logits_BI


def _chunk_logits(
    inputs: InteractionInputs,
    tower: _Tower,
    start: int,
    stop: int,
    item_product: Tensor,
    item_tower: Tensor,
) -> Tensor:
    """Logits [c, K] for rows start..stop; items [c, K, .] of each row or [K, .] shared by all."""
    user_product_cF, user_tower_cH = inputs.user_rows(start, stop)
    activation = tower.forward(user_tower_cH[:, None] + item_tower)[-1]
    weighted_cF = user_product_cF * inputs.output_product_F
    if item_product.dim() == 2:
        logits_cK = weighted_cF @ item_product.T
    else:
        logits_cK = torch.bmm(item_product, weighted_cF[:, :, None]).squeeze(2)
    logits_cK += (activation @ inputs.output_tower_D).view_as(logits_cK)
    return logits_cK.add_(inputs.output_bias_1)


class _Tower:
    """The tower after its first layer, on one chunk of samples at a time."""

    def __init__(
        self, inputs: InteractionInputs, dropout: TowerDropout | None, dtype: torch.dtype
    ) -> None:
        self.dropout = dropout if dropout is not None and dropout.rate > 0.0 else None
        self.scale = 1.0 / keep_rate(self.dropout.rate) if self.dropout else 1.0
        self.width = inputs.item_tower_IH.shape[1]
        self.layers = [
            ((weight * self.scale).to(dtype), bias.to(dtype)) for weight, bias in inputs.layers
        ]
        self.output_D = inputs.output_tower_D * self.scale
        self.gradients = [_accumulator(tensor) for tensor in inputs.hidden]
        self.frozen = not any(tensor.requires_grad for tensor in inputs.hidden)

    def forward(self, preactivation: Tensor, first_sample: int = 0) -> list[Tensor]:
        """Activations [S, width] of every layer, the first from its preactivation, in place."""
        activation = preactivation.relu_().flatten(0, -2)
        activations = [self._drop(activation, first_sample, 0)]
        for number, (weight, bias) in enumerate(self.layers, start=1):
            activation = F.linear(activations[-1], weight, bias).relu_()
            activations.append(self._drop(activation, first_sample, number))
        return activations

    def backward(self, activations: list[Tensor], gradient: Tensor) -> Tensor:
        """Gradient [S, H] of the preactivation; ``gradient`` is that of the last activation."""
        for number in range(len(self.layers), 0, -1):
            gradient = _stopped(gradient, activations[number])
            if not self.frozen:
                weight_gradient, bias_gradient = self.gradients[2 * number - 2 : 2 * number]
                weight_gradient.add_(gradient.T @ activations[number - 1], alpha=self.scale)
                bias_gradient.add_(gradient.sum(0, dtype=bias_gradient.dtype))
            gradient = gradient @ self.layers[number - 1][0]
        return _stopped(gradient, activations[0])

    def _drop(self, activation: Tensor, first_sample: int, layer: int) -> Tensor:
        if self.dropout is None:
            return activation
        num_samples, width = activation.shape
        key = layer_key(self.dropout, layer)
        keep = keep_mask(
            key, first_sample, num_samples, width, self.dropout.rate, activation.device
        )
        return activation.mul_(keep)


class _Pass:
    """One pass over all rows of a step: the loss and the gradient of every input."""

    def __init__(
        self, inputs: InteractionInputs, dropout: TowerDropout | None, dtype: torch.dtype
    ) -> None:
        self.inputs = inputs
        self.tower = _Tower(inputs, dropout, dtype)
        self.item_tower_IH = inputs.item_tower_IH.to(dtype)
        self.user_tower_BH = inputs.user_tower_BH.to(dtype)
        self.needs_items = (
            inputs.item_tower_IH.requires_grad or inputs.item_product_IF.requires_grad
        )
        zeros = (_accumulator(tensor) for tensor in inputs.tensors()[:7])
        self.gradients = InteractionInputs.of((*zeros, *self.tower.gradients))
        self.loss = self.gradients.output_bias_1.new_zeros(())

    def run(self, samples: Samples) -> tuple[Tensor, list[Tensor | None]]:
        num_candidates = samples.item_index_BK.shape[1]
        shape = samples.item_index_BK.shape
        label_BK, weight_BK = samples.label_BK.expand(shape), samples.weight_BK.expand(shape)
        for start, stop in _chunks(self.inputs.num_rows, num_candidates, self.loss.device):
            self._chunk(
                start,
                stop,
                samples.item_index_BK[start:stop],
                label_BK[start:stop],
                weight_BK[start:stop],
            )
        tensors = zip(self.inputs.tensors(), self.gradients.tensors(), strict=True)
        return self.loss, [
            gradient.to(tensor.dtype) if tensor.requires_grad else None
            for tensor, gradient in tensors
        ]

    def _chunk(
        self, start: int, stop: int, item_index_cK: Tensor, label_cK: Tensor, weight_cK: Tensor
    ) -> None:
        inputs, total = self.inputs, self.gradients
        num_rows, num_candidates = item_index_cK.shape
        items = item_index_cK.reshape(-1)
        tower_cKH = self.item_tower_IH.index_select(0, items).view(num_rows, num_candidates, -1)
        tower_cKH += self.user_tower_BH[start:stop, None]
        activations = self.tower.forward(tower_cKH, start * num_candidates)
        product_cKF = inputs.item_product_IF.index_select(0, items)
        product_cKF = product_cKF.view(num_rows, num_candidates, -1)
        user_product_cF = inputs.user_product_BF[start:stop]
        weighted_cF = user_product_cF * inputs.output_product_F
        last_SD = activations[-1].to(total.output_tower_D.dtype)
        logits_cK = torch.bmm(product_cKF, weighted_cF[:, :, None]).squeeze(2)
        logits_cK += (last_SD @ self.tower.output_D).view_as(logits_cK)
        logits_cK += inputs.output_bias_1

        losses_cK = F.softplus(logits_cK) - logits_cK * label_cK
        self.loss += (weight_cK * losses_cK).sum()
        slope_cK = (logits_cK.sigmoid_() - label_cK).mul_(weight_cK)
        slope_S = slope_cK.reshape(-1)

        total.output_bias_1.add_(slope_S.sum())
        total.output_tower_D.add_(slope_S @ last_SD, alpha=self.tower.scale)
        by_row_cF = torch.bmm(slope_cK[:, None], product_cKF).squeeze(1)
        total.output_product_F.add_((by_row_cF * user_product_cF).sum(0))
        total.user_product_BF[start:stop] = by_row_cF * inputs.output_product_F

        last_gradient = torch.outer(slope_S, self.tower.output_D).to(self.item_tower_IH.dtype)
        tower_gradient_SH = self.tower.backward(activations, last_gradient)
        tower_gradient_cKH = tower_gradient_SH.view(num_rows, num_candidates, -1)
        total.user_tower_BH[start:stop] = tower_gradient_cKH.sum(1, dtype=total.user_tower_BH.dtype)
        if self.needs_items:
            tower_gradient_SH = tower_gradient_SH.to(total.item_tower_IH.dtype)
            total.item_tower_IH.index_add_(0, items, tower_gradient_SH)
            item_gradient_cKF = slope_cK[:, :, None] * weighted_cF[:, None]
            total.item_product_IF.index_add_(0, items, item_gradient_cKF.flatten(0, 1))


def _stopped(gradient: Tensor, activation: Tensor) -> Tensor:
    """The gradient, zero where relu or dropout made the activation zero."""
    result: Tensor = torch.ops.aten.threshold_backward(gradient, activation, 0)
    return result


def _accumulator(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))


def _chunks(num_rows: int, samples_per_row: int, device: torch.device) -> Iterator[tuple[int, int]]:
    rows_at_once = max(1, _SAMPLES_AT_ONCE[device.type] // max(1, samples_per_row))
    for start in range(0, num_rows, rows_at_once):
        yield start, min(start + rows_at_once, num_rows)

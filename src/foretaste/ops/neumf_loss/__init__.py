"""NeuMF after its first projections: users with their candidates to logits and loss.

`reference` is the definition, on any device; `chunked` the same in chunks that fit a cache, value
and gradients in one pass; `triton` fused for CUDA.

Shape suffixes: B rows, K candidates per row, I items, F factors, H and D tower widths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.ops.buffers import Buffers
from foretaste.ops.neumf_loss import chunked, reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout

Implementation = Literal["reference", "chunked", "compiled", "triton"]


def loss(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
    buffers: Buffers | None = None,
    implementation: Implementation = "chunked",
) -> Tensor:
    """Weighted sum of the samples' losses, a scalar, differentiable once.

    Raises UnsupportedError where ``triton`` is asked for and has no kernel for this.

    Args:
        compute_dtype: of the tower's products; None means as the inputs are.
        buffers: where to keep large memory from one call to the next.
        implementation: ``reference`` is the plain definition, ``chunked`` fits a cache on any
            device, ``compiled`` is what torch.compile makes of the reference, ``triton`` is fused
            for CUDA GPUs.
    """
    _check_inputs(inputs)
    shape = samples.item_index_BK.shape
    assert len(shape) == 2, shape
    assert shape[0] == inputs.num_rows, (shape, inputs.num_rows)
    for other in (samples.label_BK.shape, samples.weight_BK.shape):
        fits = zip(reversed(other), reversed(shape), strict=False)
        assert len(other) <= 2, other
        assert all(size in (1, whole) for size, whole in fits), (other, shape)
    if implementation == "reference":
        return reference.loss(_in_dtype(inputs, compute_dtype), samples, dropout)
    if implementation == "compiled":
        return reference.compiled_loss(inputs, samples, dropout, compute_dtype=compute_dtype)
    if implementation == "chunked":
        return chunked.loss(inputs, samples, dropout, compute_dtype=compute_dtype, buffers=buffers)
    if samples.objective.name != "bce":
        raise UnsupportedError(
            f"kernels is triton, and no kernel has the loss {samples.objective.name}; use auto"
        )
    from foretaste.ops.neumf_loss.triton import loss as triton_loss

    if not triton_loss.supports(inputs, samples, compute_dtype or inputs.item_tower_IH.dtype):
        raise UnsupportedError(
            "kernels is triton, and its kernel does not take layers of these widths, or so many "
            "negatives, on this GPU; use auto"
        )
    return triton_loss.loss(inputs, samples, dropout, compute_dtype=compute_dtype)


def logits(
    inputs: InteractionInputs,
    item_index_BK: Tensor,
    user_index_B: Tensor | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
    implementation: Implementation = "chunked",
) -> Tensor:
    """Logits [B, K] of each row's candidates; gradients and unbounded memory with ``reference``.

    Args:
        user_index_B: the inputs' user row of each row; None means all, in order.
        compute_dtype: of the tower's products; None means as the inputs are.
        implementation: as in `loss`, but ``triton`` is ``chunked`` where the kernel does not take
            the sizes, as ``compiled`` is.
    """
    _check_inputs(inputs)
    num_rows = inputs.num_rows if user_index_B is None else user_index_B.shape[0]
    assert item_index_BK.shape[0] == num_rows, (item_index_BK.shape, num_rows)
    if _triton_scores(inputs, compute_dtype, implementation):
        from foretaste.ops.neumf_loss.triton import logits as triton_logits

        return triton_logits.logits(
            inputs, item_index_BK, user_index_B, compute_dtype=compute_dtype
        )
    if user_index_B is not None:
        inputs = replace(
            inputs,
            user_product_BF=inputs.user_product_BF.index_select(0, user_index_B),
            user_tower_BH=inputs.user_tower_BH.index_select(0, user_index_B),
        )
    if implementation == "reference":
        return reference.logits(_in_dtype(inputs, compute_dtype), item_index_BK)
    return chunked.logits(inputs, item_index_BK, compute_dtype=compute_dtype)


def catalogue_logits(
    inputs: InteractionInputs, *, implementation: Implementation = "chunked"
) -> Tensor:
    """Logits [B, I] of every item for every row; see `logits`."""
    _check_inputs(inputs)
    if _triton_scores(inputs, None, implementation):
        from foretaste.ops.neumf_loss.triton import logits as triton_logits

        return triton_logits.catalogue_logits(inputs)
    if implementation == "reference":
        item_index_I = torch.arange(inputs.num_items, device=inputs.device)
        return reference.logits(inputs, item_index_I.expand(inputs.num_rows, -1))
    return chunked.catalogue_logits(inputs)


def _triton_scores(
    inputs: InteractionInputs, dtype: torch.dtype | None, implementation: Implementation
) -> bool:
    """True if logits come from the fused kernel."""
    if implementation != "triton":
        return False
    from foretaste.ops.neumf_loss.triton import logits as triton_logits

    return triton_logits.supports(inputs, dtype or inputs.item_tower_IH.dtype)


def _in_dtype(inputs: InteractionInputs, dtype: torch.dtype | None) -> InteractionInputs:
    if dtype is None:
        return inputs
    return InteractionInputs.of(tuple(tensor.to(dtype) for tensor in inputs.tensors()))


def _check_inputs(inputs: InteractionInputs) -> None:
    num_rows, factors = inputs.user_product_BF.shape
    num_items, width = inputs.item_tower_IH.shape
    assert inputs.item_product_IF.shape == (num_items, factors), inputs.item_product_IF.shape
    assert inputs.user_tower_BH.shape == (num_rows, width), inputs.user_tower_BH.shape
    assert inputs.output_product_F.shape == (factors,), inputs.output_product_F.shape
    assert inputs.output_bias_1.shape == (1,), inputs.output_bias_1.shape
    for weight, bias in inputs.layers:
        assert weight.shape == (bias.shape[0], width), (weight.shape, bias.shape, width)
        width = weight.shape[0]
    assert inputs.output_tower_D.shape == (width,), inputs.output_tower_D.shape

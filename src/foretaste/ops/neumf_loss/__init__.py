"""NeuMF after its first projections: from users and their candidates to the loss.

`reference` is the definition, on any device; `chunked` the same in chunks that fit a cache, value
and gradients in one pass, and has the logits; `triton` is fused for CUDA.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.ops.buffers import Buffers
from foretaste.ops.neumf_loss import chunked
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout
from foretaste.ops.precomputed_gradients import with_gradients


def loss(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
    buffers: Buffers | None = None,
    implementation: Literal["chunked", "triton"] = "chunked",
) -> Tensor:
    """Weighted sum of the samples' losses, a scalar, differentiable once.

    Raises UnsupportedError if ``triton`` is asked for and has no kernel for this.

    Args:
        compute_dtype: of the tower's products; None means as the inputs are. Sums are kept in
            float32 at least.
        buffers: where to keep large memory from one call to the next.
    """
    if implementation == "chunked":
        value, gradients = chunked.value_and_gradients(
            inputs, samples, dropout, compute_dtype=compute_dtype, buffers=buffers
        )
        tensors = inputs.tensors()
        wanted = [
            gradient if tensor.requires_grad else None
            for tensor, gradient in zip(tensors, gradients.tensors(), strict=True)
        ]
        # The pass that made the value has made the gradients too: backward only returns them.
        return with_gradients(value, tensors, wanted)
    if samples.objective.name != "bce":
        raise UnsupportedError(
            f"kernels is triton, and no kernel has the loss {samples.objective.name}; "
            "use --kernels chunked"
        )
    from foretaste.ops.triton import neumf_loss as triton_loss

    if not triton_loss.supports(inputs, samples, compute_dtype or inputs.item_tower_IH.dtype):
        raise UnsupportedError(
            "kernels is triton, and its kernel does not take layers of these widths, or this "
            "number of negatives; use --kernels chunked"
        )
    return triton_loss.loss(inputs, samples, dropout, compute_dtype=compute_dtype)

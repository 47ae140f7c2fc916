"""Check of the likelihood's kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops import softmax_loss
from foretaste.ops.triton.self_check import Implementation, leaves, problem_of, ragged_histories


def problem(dtype: torch.dtype, device: torch.device) -> str | None:
    """The error of the kernel for logits of a dtype, in words, or None."""
    return problem_of(_results, dtype, device)


def _results(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    weights = leaves([(13, 24), (70, 24), (70,)], torch.promote_types(dtype, torch.float32), device)
    # the reference computes in the dtype of its inputs
    layer = [one.to(dtype) for one in weights] if implementation == "reference" else weights
    hidden_BD, weight_ID, bias_I = layer
    value = softmax_loss.loss(
        hidden_BD,
        weight_ID,
        bias_I,
        ragged_histories(device),
        scale=1.0 / 13,
        compute_dtype=dtype,
        implementation=implementation,
    )
    return [value.detach(), *torch.autograd.grad(value, weights)]

"""Check of the history encoder's kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops import embedding_bag
from foretaste.ops.triton.self_check import Implementation, leaves, problem_of, ragged_histories


def problem(dtype: torch.dtype, device: torch.device) -> str | None:
    """The error of the kernel for tables of a dtype, in words, or None."""
    return problem_of(_results, dtype, device)


def _results(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    (table_IH,) = leaves([(70, 24)], dtype, device)
    encoded_BH = embedding_bag.encode(
        table_IH, ragged_histories(device), dropout=0.5, key=3, implementation=implementation
    )
    return [encoded_BH.detach(), *torch.autograd.grad(encoded_BH.square().sum(), [table_IH])]

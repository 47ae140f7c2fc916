"""Types of what `torch.autograd.Function` hands to ``forward`` and ``backward``."""

from __future__ import annotations

from torch import Tensor
from torch.autograd.function import FunctionCtx

Gradients = tuple[Tensor | None, ...]
"""One gradient per argument of ``forward``; None if the argument has none."""


class Context(FunctionCtx):
    """What ``forward`` keeps for ``backward``; each function declares its further fields."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

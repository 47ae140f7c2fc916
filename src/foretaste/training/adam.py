"""The optimizer of every neural model."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from foretaste.training.resolve import TrainingPlan


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` that is not kept from the compiler, so it does not import it either.

    PyTorch wraps these methods to hold ``torch.compile`` off them, and imports all of
    ``torch._dynamo`` for that: 2 s at the beginning of every training. The optimizer is never
    compiled here. Unwrapped the methods are the same; ``step`` also loses ``no_grad``, which it
    gets back.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def adam(model: torch.nn.Module, plan: TrainingPlan) -> torch.optim.Optimizer:
    """The optimizer of a plan: Adam over every parameter, each step in one fused pass."""
    return Adam(
        [parameter for parameter in model.parameters() if parameter.numel()],
        lr=plan.learning_rate,
        betas=(plan.beta1, plan.beta2),
        eps=plan.eps,
        fused=True,
        capturable=plan.device.startswith("cuda"),
    )

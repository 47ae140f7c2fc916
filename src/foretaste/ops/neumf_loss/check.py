"""Checks of the interaction's kernels, of training and of inference."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout
from foretaste.ops.triton.self_check import Implementation, leaves, problem_of


def loss_problem(dtype: torch.dtype, device: torch.device) -> str | None:
    """The error of the loss's kernel for products of a dtype, in words, or None."""
    return problem_of(_loss_results, dtype, device)


def logits_problem(dtype: torch.dtype, device: torch.device) -> str | None:
    """The same of the kernel of logits."""
    return problem_of(_logits_results, dtype, device)


def _loss_results(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    inputs, item_index_BK = _inputs(dtype, device)
    label_K = (torch.arange(5, device=device) == 0).float()[None]
    samples = Samples(item_index_BK, label_K, torch.full((1, 1), 1.0 / 145, device=device))
    dropout = TowerDropout(0.3, key=7)
    value = neumf_loss.loss(
        inputs, samples, dropout, compute_dtype=dtype, implementation=implementation
    )
    return [value.detach(), *torch.autograd.grad(value, inputs.tensors())]


def _logits_results(
    implementation: Implementation, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    inputs, item_index_BK = _inputs(dtype, device)
    logits_BK = neumf_loss.logits(
        inputs, item_index_BK, compute_dtype=dtype, implementation=implementation
    )
    return [logits_BK.detach()]


def _inputs(dtype: torch.dtype, device: torch.device) -> tuple[InteractionInputs, Tensor]:
    """29 rows with five candidates each, of 17 items."""
    tables: list[tuple[int, ...]] = [(29, 20), (17, 20), (29, 70), (17, 70)]
    layers: list[tuple[int, ...]] = [(20,), (24,), (1,), (40, 70), (40,), (24, 40), (24,)]
    weights = leaves([*tables, *layers], torch.promote_types(dtype, torch.float32), device)
    number = torch.arange(29 * 5, device=device)
    item_index_BK = ((number * number + number) % 17).view(29, 5).int()
    return InteractionInputs.of(tuple(weights)), item_index_BK

"""Memory on a device, and the models that fit it."""

from __future__ import annotations

import torch

from foretaste._util.memory import free_bytes, require_memory
from foretaste._util.process import launch
from foretaste.models.base import RecommenderModel
from foretaste.models.registry import build_model, model_class
from foretaste.models.share import Share

_UNCOUNTABLE = 2**63
"""Bytes of what has more elements than PyTorch can count."""


def free_on(device: torch.device, num_processes: int | None = None) -> int:
    """Bytes that could still be taken on a device, PyTorch's own cache included.

    Processes of one machine share its memory out: so many, or all that torchrun started there.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    return free_bytes() // (num_processes or launch().local_size)


def training_bytes(model: RecommenderModel, device: torch.device, has_average: bool) -> int:
    """Memory of training a model, without batches; ``has_average`` is for one of its weights."""
    return model.training_bytes(device) + (model.weight_bytes() if has_average else 0)


def num_parameters(model: RecommenderModel) -> int:
    """Numbers that are learned, over all ranks."""
    count = torch.zeros((), dtype=torch.int64)
    for name, parameter in model.named_parameters():
        if model.share.ranks.is_first or model.rows_of(name) is not None:
            count += parameter.numel()
    model.share.ranks.sum_(count)
    return int(count)


def check_model_fits(
    name: str,
    config: object,
    num_users: int,
    num_items: int,
    device: torch.device,
    *,
    share: Share | None = None,
    to_train: bool = False,
    has_average: bool = False,
) -> None:
    """UnsupportedError where ``device`` has no room for a model, or for `training_bytes`."""
    try:
        with torch.device("meta"):
            model = build_model(name, config, num_users, num_items, share)
        needed = training_bytes(model, device, has_average) if to_train else model.weight_bytes()
    except (RuntimeError, TypeError) as error:  # by how far it is beyond what can be counted
        if "overflow" not in str(error).lower():
            raise
        needed = _UNCOUNTABLE
    size = f"{name} for {num_users:,} users and {num_items:,} items with {config}"
    what = f"training {size}" if to_train else size
    free = free_on(device, share.ranks.local_size if share else None)
    require_memory(needed, free, what, model_class(name).memory_advice)

"""Memory on a device, and the models that fit it."""

from __future__ import annotations

import torch

from foretaste._util.memory import require_memory
from foretaste._util.system import free_bytes, launch
from foretaste.models.base import RecommenderModel
from foretaste.models.registry import Definition, build_model, model_class

_UNCOUNTABLE = 2**63
"""Bytes reported for models with more elements than PyTorch can count."""


def free_on(device: torch.device, num_processes: int | None = None) -> int:
    """Return the bytes that could still be taken on a device, PyTorch's own cache included.

    ``num_processes`` share the memory of the machine; by default all that a launcher started there.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    return free_bytes() // (num_processes or launch().local_size)


def training_bytes(model: RecommenderModel, device: torch.device, has_average: bool) -> int:
    """Return the memory of training without batches, with an average of the weights or without."""
    return model.training_bytes(device) + (model.weight_bytes() if has_average else 0)


def num_parameters(model: RecommenderModel) -> int:
    """Return how many numbers the parameters have, with fixed ones and user rows of other parts."""
    return sum(
        parameter.shape[1:].numel()
        * (len(parameter) if model.rows_of(name) is None else model.num_users)
        for name, parameter in model.named_parameters()
    )


def check_model_fits(
    definition: Definition,
    device: torch.device,
    *,
    users: range | None = None,
    to_train: bool = False,
    has_average: bool = False,
    num_processes: int | None = None,
) -> None:
    """Raise UnsupportedError if ``device`` has no room for a model, or for `training_bytes`.

    With ``users``, of a part that has the rows of these; ``num_processes`` share the memory."""
    try:
        # A model without memory: its sizes are known before anything is allocated.
        with torch.device("meta"):
            model = build_model(*definition, users)
        needed = training_bytes(model, device, has_average) if to_train else model.weight_bytes()
    except (RuntimeError, TypeError) as error:  # which one: by how far it is beyond counting
        if "overflow" not in str(error).lower():
            raise
        needed = _UNCOUNTABLE
    name, config, num_users, num_items = definition
    size = f"{name} for {num_users:,} users and {num_items:,} items with {config}"
    what = f"training {size}" if to_train else size
    advice = model_class(name).memory_advice
    require_memory(needed, free_on(device, num_processes), what, advice)

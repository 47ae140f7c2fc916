"""What of the machine decides a training's numbers, to their last digits."""

from __future__ import annotations

from typing import Any

import torch


def deciding_hardware(device: torch.device) -> dict[str, Any]:
    """As JSON values: the name of the GPU; on a CPU how many threads share the sums."""
    if device.type == "cuda":
        return {"gpu": torch.cuda.get_device_name(device)}
    return {"num_threads": torch.get_num_threads()}

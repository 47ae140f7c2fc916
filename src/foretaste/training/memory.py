"""How much memory was taken, at most."""

from __future__ import annotations

import sys

import torch


def peak_memory_mib(device: torch.device) -> float | None:
    """Peak of this process in MiB, or of the GPU's allocator; None where Python does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = peak_of_process()
    return None if peak is None else peak / 2**20


def peak_of_process() -> int | None:
    """Bytes resident at most since the process began; None under Windows, which does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

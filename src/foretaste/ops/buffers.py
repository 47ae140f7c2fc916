"""Memory used again: the large tensors of one training step after another.

What the allocator maps anew for every large tensor, the operating system has to clear page by page:
on Linux 0.3 s a gigabyte, ten times what writing to it costs afterwards.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

_MOST_FROM_HEAP = 32 * 2**20
_MOST_KEPT = 256 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Have the C library keep up to 256 MiB of what is freed for the tensors that come next.

    Steps of training and batches of scores free and allocate the same megabytes over and over,
    which glibc would give back to the system and clear again each time. Holds for the process, each
    thread that allocates having a heap of its own, and for tensors of up to 32 MiB; `Buffers` is
    for larger ones. False where nothing was set: another C library, or settings of malloc in the
    environment.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _SET_BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _MOST_FROM_HEAP) and mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
    )


class Buffers:
    """Large CPU tensors by name; memory is given out again once no tensor looks at it any more.

    So a gradient given to a parameter stays untouched for as long as anyone keeps it. Other
    devices have allocators that keep their memory, and get plain new tensors.
    """

    def __init__(self) -> None:
        self._storages: dict[str, torch.UntypedStorage] = {}

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        """Copies of a model start without its memory."""
        return Buffers, ()

    def empty(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """A contiguous tensor of whatever values were there."""
        if device.type != "cpu" or not _CAN_COUNT:
            return torch.empty(*shape, dtype=dtype, device=device)
        num_bytes = math.prod(shape) * dtype.itemsize
        storage = self._storages.get(name)
        if storage is None or storage.nbytes() < num_bytes or _num_uses(storage) > 1:
            storage = torch.empty(num_bytes, dtype=torch.uint8).untyped_storage()
            self._storages[name] = storage
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload, no-any-return]

    def clear(self) -> None:
        """Keep nothing."""
        self._storages.clear()


def _num_uses(storage: torch.UntypedStorage) -> int:
    """How many tensors and storages look at this memory."""
    uses: int = torch._C._storage_Use_Count(storage._cdata)
    return uses


def _can_count() -> bool:
    """Whether the private counter is there and counts."""
    try:
        storage = torch.empty(1).untyped_storage()
        alone = _num_uses(storage)
        tensor = torch.empty(0).set_(storage)
        return (alone, _num_uses(storage), tensor.numel()) == (1, 2, 1)
    except (AttributeError, RuntimeError, TypeError):
        return False


_CAN_COUNT = _can_count()

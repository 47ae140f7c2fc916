"""Reused memory: the large tensors of consecutive training steps share it.

The operating system clears every page that the allocator maps again: on Linux 0.3 s a gigabyte, ten
times the cost of a later write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from foretaste.ops.torch_internals import storage_use_count


# glibc in its place (`M_MMAP_MAX` 0 while a model is trained) took as long, and up to 15 % more
# memory in all: PyTorch asks for 64-byte alignment, so a freed block often does not fit the same
# tensor again, and what is kept has no bound. A thread mapped tensors of 64 MiB again.
class Buffers:
    """Large CPU tensors by name; memory is reused once no tensor views it any more. So a gradient
    that a parameter holds stays untouched. Other devices have allocators that keep their memory,
    and get plain new tensors.
    """

    def __init__(self) -> None:
        self._storages: dict[str, torch.UntypedStorage] = {}

    def empty(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return a contiguous tensor whose values are undefined."""
        if device.type != "cpu":
            return torch.empty(*shape, dtype=dtype, device=device)
        num_bytes = math.prod(shape) * dtype.itemsize
        storage = self._storages.get(name)
        # One reference is this dictionary's. More references mean that a tensor still views the
        # memory, such as a parameter's gradient, so that memory is left alone and the next step
        # gets new memory.
        if storage is None or storage.nbytes() < num_bytes or storage_use_count(storage) > 1:
            storage = torch.empty(num_bytes, dtype=torch.uint8).untyped_storage()
            self._storages[name] = storage
        # A smaller tensor takes the front of a larger buffer, so the short last batch allocates
        # nothing.
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload, no-any-return]

    def clear(self) -> None:
        """Keep nothing."""
        self._storages.clear()

"""Memory is used again, but never under a tensor that somebody still holds."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.ops.buffers import Buffers

CPU = torch.device("cpu")


def empty(
    kept: Buffers, *shape: int, name: str = "a", dtype: torch.dtype = torch.float32
) -> Tensor:
    return kept.empty(name, shape, dtype, CPU)


def test_memory_is_handed_out_again_once_it_is_free() -> None:
    kept = Buffers()
    first = empty(kept, 5, 7)
    place = first.data_ptr()
    assert first.shape == (5, 7)
    assert first.is_contiguous()
    assert empty(kept, 5, 7).data_ptr() != place
    del first
    assert len({empty(kept, 5, size).data_ptr() for size in (7, 7, 4, 1)}) == 1
    smaller = empty(kept, 3, 2, dtype=torch.bfloat16)
    assert smaller.shape == (3, 2)
    assert smaller.dtype == torch.bfloat16


def test_views_and_names_keep_memory_apart() -> None:
    kept = Buffers()
    view = empty(kept, 6, 6)[1:3]
    view.fill_(1.0)
    empty(kept, 6, 6).fill_(2.0)
    other = empty(kept, 6, 6, name="b")
    other.fill_(3.0)
    assert view.eq(1.0).all()
    assert other.eq(3.0).all()


def test_larger_needs_and_cleared_names_get_new_memory() -> None:
    kept = Buffers()
    small = empty(kept, 2)
    del small
    assert empty(kept, 2000).numel() == 2000
    kept.clear()
    assert empty(kept, 3).numel() == 3

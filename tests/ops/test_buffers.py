"""Memory that is used again, but never under a tensor that someone still has."""

from __future__ import annotations

import copy
import ctypes
import platform
import sys

import pytest
import torch
from torch import Tensor

from foretaste.ops import buffers
from foretaste.ops.buffers import Buffers, keep_freed_memory

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)


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
    second = empty(kept, 5, 7)
    del second
    smaller = empty(kept, 3, 2, dtype=torch.bfloat16)
    assert smaller.shape == (3, 2)
    assert smaller.dtype == torch.bfloat16


def test_the_same_memory_serves_one_step_after_another() -> None:
    kept = Buffers()
    places = {empty(kept, 4, size).data_ptr() for size in (9, 9, 5, 1)}
    assert len(places) == 1


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


def test_copies_share_nothing() -> None:
    kept = Buffers()
    tensor = empty(kept, 8)
    tensor.fill_(1.0)
    place = tensor.data_ptr()
    del tensor
    assert empty(copy.deepcopy(kept), 8).data_ptr() != place


def test_without_a_counter_every_tensor_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_CAN_COUNT", False)
    kept = Buffers()
    first = empty(kept, 5)
    assert not kept._storages
    assert first.shape == (5,)


def test_this_pytorch_counts() -> None:
    """Or training would be slower than it need be."""
    assert buffers._CAN_COUNT


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept() -> None:
    assert keep_freed_memory()


def test_bounds_of_the_memory_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    class Library:
        def mallopt(self, name: int, value: int) -> int:
            asked[name] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(sys, "platform", "linux")
    assert keep_freed_memory()
    assert asked == {-3: 32 * 2**20, -1: 256 * 2**20}


def test_other_libraries_keep_memory_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_freed_memory()


def test_other_systems_keep_memory_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()

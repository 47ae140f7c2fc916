"""Computing in a child of a process that has already computed."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from foretaste._util.system import after_fork_in_child
from foretaste.errors import UnsupportedError
from foretaste.ops.torch_internals import is_forked_from_cuda

_is_to_say = False


def survive_forks() -> None:
    """Limit the children that this process forks from now on to one thread.

    A warning in the child says so when this is first called.
    """
    global _is_to_say
    _register()
    if _is_to_say:
        _is_to_say = False
        warnings.warn(
            "this process was forked from one that had loaded or trained a model: it computes with "
            "one thread; load models after the fork, or start processes by spawn, to use more",
            RuntimeWarning,
            stacklevel=3,
        )


def refuse_gpu_after_fork() -> None:
    """Raise UnsupportedError in a child of a process that had used a GPU."""
    if is_forked_from_cuda():
        raise UnsupportedError(
            "this process was forked from one that had used a GPU, so it cannot use a GPU itself: "
            "load models after the fork, start processes by spawn, or give device cpu"
        )


@cache
def _register() -> None:
    after_fork_in_child(_compute_with_one_thread)


def _compute_with_one_thread() -> None:
    global _is_to_say
    # OpenMP in a fork counts on threads that only the parent has, and would wait for them for ever.
    torch.set_num_threads(1)
    _is_to_say = True

"""Triton, an optional dependency: whether it can be used, and kernels for type checkers.

Only modules and folders called ``triton`` import Triton; all others ask `can_run` first. It
comes with PyTorch's CUDA builds for Linux. If ``TRITON_INTERPRET=1`` was set before Triton was
first imported, kernels are interpreted and take CPU tensors: slow, and meant for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor

from foretaste.errors import UnsupportedError

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OLDEST_CAPABILITY = (8, 0)
"""Least compute capability of the NVIDIA GPUs that current releases of Triton support."""


@cache
def is_installed() -> bool:
    """Return True if Triton can be imported; does not import it."""
    return find_spec("triton") is not None


def can_run(device: torch.device) -> bool:
    """Return True if kernels can run on a device: Triton is here, and supports the GPU."""
    return (
        device.type == "cuda"
        and is_installed()
        and torch.cuda.get_device_capability(device) >= _OLDEST_CAPABILITY
    )


def kernel(function: _Function) -> _Function:
    """``triton.jit``: a kernel to launch, or a function for kernels to call."""
    import triton

    compiled: _Function = triton.jit(function)
    return compiled


def launch(
    function: Callable[..., Any], num_programs: int, *args: object, **options: object
) -> None:
    """Queue ``num_programs`` programs of a kernel on the current stream of its tensors' device.

    ``options`` are the kernel's compile-time constants and ``num_warps``, ``num_stages``. Raises
    UnsupportedError if this Triton does not compile the kernel for the GPU, or if the kernel
    needs more shared memory than there is: both differ between GPUs and between versions of Triton.
    """
    import triton
    from triton.runtime.errors import OutOfResources

    grid: Any = function
    tensor = next(_tensors(args))
    # kernels run on the current GPU; each thread has its own
    is_elsewhere = tensor.is_cuda and tensor.device.index != torch.cuda.current_device()
    with torch.cuda.device(tensor.device) if is_elsewhere else nullcontext():
        try:
            grid[(num_programs,)](*args, enable_fp_fusion=True, **options)
        except OutOfResources as error:
            raise UnsupportedError(
                "kernels is triton, and a kernel for these widths takes more than this GPU has "
                f"({error.name}: {error.required:,} of {error.limit:,}); use --precision "
                "bf16, which takes least, or --kernels chunked"
            ) from error
        except RuntimeError as error:
            if not str(error).startswith("PassManager"):
                raise
            raise UnsupportedError(
                f"kernels is triton, and Triton {triton.__version__} does not compile a kernel "
                "for these widths on this GPU; use --kernels chunked"
            ) from error


def _tensors(args: Iterable[object]) -> Iterator[Tensor]:
    """Yield tensors among arguments, and in tuples among them."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, tuple):
            yield from _tensors(arg)

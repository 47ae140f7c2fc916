"""Choice of the device to compute on, and of the CPU's threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foretaste._util.settings import Threads, validate
from foretaste.errors import SettingError
from foretaste.ops.forks import refuse_gpu_after_fork


@contextmanager
def computing_with(threads: int | None) -> Iterator[None]:
    """Set the number of CPU threads of PyTorch for a block, if a number is given.

    Threads that begin to compute during the block get the number too, and keep it; threads that
    have computed before keep their own.
    """
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(validate("threads", threads, Threads))
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


def resolve_device(name: str) -> torch.device:
    """Return the device called ``name``: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    ``auto`` is the current CUDA GPU if this PyTorch was built for it, and the CPU otherwise; a
    warning says so if there is another GPU. CUDA devices always carry their index, so
    that the result equals the ``device`` of a tensor placed on it, and become the current device.
    Raises SettingError for another name and for a GPU that is not there, and UnsupportedError in a
    child that was forked from a process with a GPU.
    """
    if name != "cpu":
        refuse_gpu_after_fork()
    if name == "cpu" or (name == "auto" and not _has_usable_gpu()):
        return torch.device("cpu")
    if name == "auto":
        return _cuda_device(None)
    kind, colon, index = name.partition(":")
    if kind != "cuda" or (colon and not (index.isascii() and index.isdecimal())):
        raise SettingError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise SettingError(
            f"device {name!r} was asked for, but PyTorch {torch.__version__} finds no CUDA GPU "
            "here; choose auto or cpu, or install a PyTorch built for CUDA and an NVIDIA driver"
        )
    return _cuda_device(int(index) if colon else None)


def computes_tf32(device: torch.device) -> bool:
    """Return True if a GPU computes float32 products in tf32 unless exact ones are asked for: from
    compute capability 8.0 on, if NVIDIA's NVIDIA_TF32_OVERRIDE=0 does not forbid it."""
    return (
        device.type == "cuda"
        and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def _cuda_device(index: int | None) -> torch.device:
    num_devices = torch.cuda.device_count()
    if index is not None and index >= num_devices:
        raise SettingError(
            f"device 'cuda:{index}' was asked for, but there are {num_devices} GPUs: "
            f"the last is cuda:{num_devices - 1}"
        )
    device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
    torch.cuda.set_device(device)  # Triton launches on the current device
    return device


def _has_usable_gpu() -> bool:
    """Return whether a current GPU exists that this build of PyTorch supports; warn if not."""
    if not torch.cuda.is_available():
        return False
    capability = torch.cuda.get_device_capability()
    built_for = torch.cuda.get_arch_list()
    if any(_covers(architecture, capability) for architecture in built_for):
        return True
    warnings.warn(
        f"{torch.cuda.get_device_name()} has compute capability {capability[0]}.{capability[1]}, "
        f"and PyTorch {torch.__version__} was built for {', '.join(built_for)}: computing on the "
        "CPU; install a PyTorch built for this GPU to use it",
        RuntimeWarning,
        stacklevel=3,
    )
    return False


def _covers(architecture: str, capability: tuple[int, int]) -> bool:
    """Return True if code for ``architecture`` runs on a GPU.

    Code for ``sm_86`` runs on its major version from that minor on, ``compute_90`` also on newer.
    """
    kind, _, number = architecture.partition("_")
    digits = number.rstrip("af")
    if not digits.isdecimal():
        return False
    built = (int(digits[:-1]), int(digits[-1]))
    if kind == "compute":
        return built <= capability
    if digits != number:  # sm_90a: of that GPU's own features
        return built == capability
    return built[0] == capability[0] and built <= capability

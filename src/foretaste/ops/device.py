"""Which device to compute on."""

from __future__ import annotations

import torch

from foretaste.errors import SettingError
from foretaste.ops.torch_internals import keep_freed_memory


def resolve_device(name: str) -> torch.device:
    """The device called ``name``: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    ``auto`` is the current CUDA GPU where there is one and the CPU otherwise. CUDA devices always
    carry their index, so that the result equals the ``device`` of a tensor placed on it, and become
    the current device. With a CPU, freed memory is kept from then on (`keep_freed_memory`). Raises
    SettingError for another name and for a GPU that is not there.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        keep_freed_memory()
        return torch.device("cpu")
    if name == "auto":
        return _cuda_device(None)
    kind, colon, index = name.partition(":")
    if kind != "cuda" or (colon and not (index.isascii() and index.isdecimal())):
        raise SettingError(f"device {name!r} is unknown; choose auto, cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise SettingError(
            f"device {name!r} was asked for, but PyTorch {torch.__version__} finds no CUDA GPU "
            "here; choose auto or cpu, or install a PyTorch built for CUDA and an NVIDIA driver"
        )
    return _cuda_device(int(index) if colon else None)


def _cuda_device(index: int | None) -> torch.device:
    num_devices = torch.cuda.device_count()
    if index is not None and index >= num_devices:
        raise SettingError(
            f"device 'cuda:{index}' was asked for, but there are {num_devices} GPUs: "
            f"the last is cuda:{num_devices - 1}"
        )
    device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
    torch.cuda.set_device(device)  # Triton launches on the current one
    return device

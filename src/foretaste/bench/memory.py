"""How much memory a measurement takes, above what was taken before it."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import torch

from foretaste._util.memory import free_bytes, require_memory
from foretaste.ops.torch_internals import Adam
from foretaste.training.memory import peak_of_process

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class PeakMemory:
    """Watches memory from its making on.

    On a GPU the allocator's peak; on a CPU that of the process's resident memory, which Linux
    lets a process reset. ``meaning`` says which it was, for the row.
    """

    def __init__(self, device: torch.device) -> None:
        _give_back_freed()
        self.device = device
        self.is_reset = True
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._before = float(torch.cuda.memory_allocated(device))
        else:
            self.is_reset = _reset_resident_peak()
            self._before = _resident("VmRSS") if self.is_reset else 0.0

    @property
    def meaning(self) -> str:
        """What `rise_mib` is."""
        if self.device.type == "cuda":
            return "rise of the CUDA allocator's peak over what was allocated before"
        if self.is_reset:
            return "rise of the process's peak resident memory over what was resident before"
        return "peak resident memory of the process since it began"

    def rise_mib(self) -> float | None:
        """MiB at the peak since the watching began, less what was there before; None where Python
        does not tell, as on a CPU under Windows."""
        if self.device.type == "cuda":
            peak: float | None = float(torch.cuda.max_memory_allocated(self.device))
        else:
            peak = _resident("VmHWM") if self.is_reset else peak_of_process()
        return None if peak is None else max(0.0, peak - self._before) / 2**20


def load_libraries(device: torch.device) -> None:
    """Let PyTorch load what it loads at first use: it would count as the first side's memory."""
    weight = torch.ones(2, 2, device=device, requires_grad=True)
    optimizer = Adam([weight], fused=True)
    (weight @ weight).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def check_calls_fit(num_rows: int, numbers_per_row: int, num_inputs: int) -> None:
    """UnsupportedError where inputs of so many rows, or what a call makes of them, do not fit."""
    require_memory(
        4 * num_rows * (numbers_per_row + 4 * num_inputs),
        free_bytes(),
        f"calls of {num_rows:,} at a time",
        "lower batch_sizes",
    )


def _give_back_freed() -> None:
    """Freed memory that the C library keeps would hide what comes next."""
    gc.collect()
    if sys.platform == "win32":
        return  # Its C library has nothing of the kind.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_resident_peak() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return _STATUS.is_file()


def _resident(name: str) -> float:
    return _kibibytes(_STATUS, name) * 1024


def _kibibytes(path: Path, name: str) -> float:
    lines = path.read_text().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

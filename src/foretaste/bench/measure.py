"""Clocks and peak memory of benchmarks."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from foretaste._util.documents import Document
from foretaste._util.system import peak_of_process, reset_peak_of_process, resident_bytes
from foretaste.ops.torch_internals import Adam


@dataclass(frozen=True)
class Spread:
    """Measurements of one quantity."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        assert values, "nothing was measured"
        return cls(tuple(values))

    def per_second(self, amount: float) -> Spread:
        """Return rates: ``amount`` divided by these seconds."""
        return Spread(tuple(amount / seconds for seconds in self.values))

    def as_dict(self) -> Document:
        """Return the median, extremes and all measurements."""
        return {
            "median": statistics.median(self.values),
            "min": min(self.values),
            "max": max(self.values),
            "values": list(self.values),
        }


@dataclass(frozen=True)
class Latency:
    """Seconds of single calls, turn by turn."""

    turns: tuple[tuple[float, ...], ...]

    @property
    def num_calls(self) -> int:
        return sum(map(len, self.turns))

    def averages(self) -> Spread:
        """Return the mean seconds per call of each turn."""
        return Spread.of([statistics.fmean(turn) for turn in self.turns])

    def as_dict(self) -> dict[str, float]:
        """Return the average and percentiles over all calls, in milliseconds."""
        calls_ms = [1e3 * seconds for turn in self.turns for seconds in turn]
        calls = torch.tensor(calls_ms, dtype=torch.float64)
        levels = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
        percentiles = {name: calls.quantile(level).item() for name, level in levels.items()}
        return {"average": statistics.fmean(calls_ms), **percentiles}


def time_call(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call; the device is idle at both ends."""

    def wait() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    started = wait()
    call()
    return wait() - started


class PeakMemory:
    """Peak of memory since this object was made, above the memory taken before.

    It is the peak of the allocator on a GPU, and of the process's resident memory on a CPU, which
    Linux can reset. ``meaning`` has its definition.
    """

    def __init__(self, device: torch.device) -> None:
        gc.collect()
        # The C library keeps freed memory, which would hide the next growth.
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)
        self.device = device
        self.is_reset = True
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._before = float(torch.cuda.memory_allocated(device))
        else:
            self.is_reset = reset_peak_of_process()
            self._before = resident_bytes("VmRSS") if self.is_reset else 0.0

    @property
    def meaning(self) -> str:
        """Definition of `rise_mib`."""
        if self.device.type == "cuda":
            return "rise of the CUDA allocator's peak over what was allocated before"
        if self.is_reset:
            return "rise of the process's peak resident memory over what was resident before"
        return "peak resident memory of the process since it began"

    def rise_mib(self) -> float:
        """MiB at the peak, less the memory taken before."""
        if self.device.type == "cuda":
            peak = float(torch.cuda.max_memory_allocated(self.device))
        else:
            # VmHWM is the high-water mark of the resident memory, which the reset set back.
            peak = resident_bytes("VmHWM") if self.is_reset else peak_of_process() or 0
        return max(0.0, peak - self._before) / 2**20

    def as_numbers(self) -> Document:
        """Return the entries of a row."""
        return {"peak_memory_mib": self.rise_mib(), "peak_memory_is": self.meaning}


def load_libraries(device: torch.device) -> None:
    """Make PyTorch load its libraries, which would count as the memory of the first side."""
    weight = torch.ones(2, 2, device=device, requires_grad=True)
    optimizer = Adam([weight], fused=True)
    (weight @ weight).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()

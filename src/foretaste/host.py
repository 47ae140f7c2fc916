"""Settings of the whole process, made by the command line.

A library call makes none of them. Three settings have to be there before another library is loaded:
`share_cores` is called by ``import foretaste``, `send_no_telemetry` before onnxruntime is imported,
`ensure_home` before altair is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import NoReturn

# glibc takes no larger threshold (mallopt(3)): larger blocks are mapped again each time.
_MAX_FROM_HEAP = 32 * 2**20
_MAX_KEPT = 256 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

_SPIN_COUNT = "1000"


def share_cores() -> None:
    """Let waiting OpenMP threads spin for a moment and then sleep; by default they spin for ever.

    Nothing is set after PyTorch was imported, because it would do nothing, and nothing if
    GOMP_SPINCOUNT or OMP_WAIT_POLICY is set.
    """
    # Milliseconds of an update on two cores, of GMF with 512 negatives, NeuMF and Mult-VAE:
    #   1,000 turns: alone 23.5, 29.5, 29.7; beside another program 24, 45, 38
    #   10,000 turns: alone 15.2, 22.4, 21.7; beside another program 55, 66, 58
    # More than 10,000 gain nothing alone, and sleeping at once costs a third.
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT


def send_no_telemetry() -> None:
    """Keep onnxruntime from writing a device id and a queue of events to the home."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def ensure_home() -> None:
    """Set HOME to the folder of temporary files for a user without a home, as in a container.

    altair asks for a home as it is imported, and keeps nothing in it.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = gettempdir()


def keep_freed_memory() -> bool:
    """Have glibc keep up to 256 MiB of what is freed for the tensors that come next.

    Steps of training and batches of scores free and allocate the same megabytes over and over.
    glibc would give them back to the system each time, which clears them again. Tensors of up to
    32 MiB are kept. False if nothing was set: with another C library, or if the environment has
    settings of malloc.
    """
    # Processor time with it over that without it: a training of Mult-VAE 0.71 to 0.83, of iALS 0.95
    # to 1.06 (four turns); `fit` on ml-100k of vae 0.98 to 1.14, of ials 0.92 to 1.03 (five). The
    # p90 of a service whose catalogue is small, 3,706 items: 0.97 to 1.19 of that without it.
    if sys.platform != "linux" or any(name in os.environ for name in _SET_BY_USER):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _MAX_FROM_HEAP) and mallopt(_M_TRIM_THRESHOLD, _MAX_KEPT)
    )


def silence_profiler() -> None:
    """Keep PyTorch's profiler from printing on stderr that it starts and stops, and its errors."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def leave(status: int) -> NoReturn:
    """End the process at once, without the clean-up of Python and of libraries."""
    # Seconds of the processor with it and without it, medians of seven turns: `foretaste --help`
    # 0.26 and 0.29, `foretaste recommend` for one user 1.26 and 1.72.
    os._exit(status)

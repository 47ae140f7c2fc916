"""Where and with what a number was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import foretaste

COMMIT_VARIABLE = "FORETASTE_COMMIT"
"""Names the commit where the source travels without its history."""

_PACKAGES = ("torch", "numpy", "triton", "pyarrow")


def environment(device: torch.device) -> dict[str, Any]:
    """Commit, versions, hardware and date, as JSON values."""
    return {
        "commit": _commit(),
        "versions": _versions(),
        "hardware": _hardware(device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """The commit measured, with ``-dirty`` where files differ from it; None if unknown."""
    if named := os.environ.get(COMMIT_VARIABLE):
        return named
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    folder = Path(foretaste.__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {
        "foretaste": foretaste.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _hardware(device: torch.device) -> dict[str, Any]:
    return {
        "device": device.type,
        "cpu": _cpu_name(),
        "num_cores": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()

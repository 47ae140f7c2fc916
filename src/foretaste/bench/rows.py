"""Measurements as rows, one JSON object each with its environment, and as tables."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import foretaste
from foretaste._util.documents import Document
from foretaste._util.formatting import compact
from foretaste._util.system import cpu_name

OURS = "foretaste"

COMMIT_VARIABLE = "FORETASTE_COMMIT"
"""Environment variable that names the commit; a source tree without git needs it."""

_PACKAGES = ("torch", "numpy", "triton", "pyarrow")

HEADINGS = {
    "ranks": "ranks",
    "batch_per_rank": "batch a rank",
    "precision": "precision",
    "kernels": "kernels",
    "batch_size": "batch",
    "users": "of",
    "history_length": "items each",
    "samples_per_s": "samples/s",
    "users_per_s": "users/s",
    "strong_scaling": "strong scaling",
    "weak_scaling": "weak scaling",
    "epoch_s": "epoch",
    "average": "average",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "peak_memory_mib": "memory",
    "sent_mib": "sent",
    "compile_s": "compile",
    "warmup_s": "warm-up",
    "first_call_s": "first call",
}
"""Columns of a table, in order."""

_MILLISECONDS = frozenset({"average", "p90", "p95", "p99"})


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement of one side."""

    benchmark: str
    """train, inference, recommend, ..."""
    model: str
    side: str
    """foretaste, or the baseline of the comparison."""
    case: Document
    """Settings that distinguish the rows: precision, batch size, ..."""
    clock: str
    """Extent of the clock, in words."""
    measured: Document
    """Numbers by name with unit; a spread has median, min, max and values."""


def environment(device: torch.device) -> Document:
    """Return the commit, versions, hardware and date, as JSON values."""
    versions: dict[str, str | None] = {
        "foretaste": foretaste.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "commit": _commit(),
        "versions": versions,
        "hardware": {
            "device": device.type,
            "cpu": cpu_name(),
            "num_cores": os.cpu_count(),
            "num_threads": torch.get_num_threads(),
            # How long idle threads of OpenMP spin: on a busy machine this changes the times.
            "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
            "spin_count": os.environ.get("GOMP_SPINCOUNT"),
            "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """Return the measured commit, with ``-dirty`` if files differ from it; None if unknown."""
    if named := os.environ.get(COMMIT_VARIABLE):
        return named
    # Without any tag `git describe` prints the commit.
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    folder = Path(foretaste.__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


@dataclass(frozen=True)
class Table:
    """Cells as text under a title."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        """Return the table in Markdown, below its title."""
        rule = ("---", *("---:" for _ in self.headings[1:]))
        lines = [f"| {' | '.join(row)} |" for row in (self.headings, rule, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines])


def table_of(rows: Sequence[Row], headings: Mapping[str, str] = HEADINGS) -> Table:
    """Return the table of the rows of one benchmark, in their order, without empty columns."""
    values = [{**row.case, **row.measured, **row.measured.get("latency_ms", {})} for row in rows]
    names = [name for name in headings if any(name in of_row for of_row in values)]
    return Table(
        f"{rows[0].benchmark} {rows[0].model}",
        ("side", *(headings[name] for name in names)),
        tuple(
            (row.side, *(cell(name, of_row.get(name)) for name in names))
            for row, of_row in zip(rows, values, strict=True)
        ),
    )


def cell(name: str, value: Any) -> str:
    """Return the text of a value in column ``name``."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        is_number = name.endswith("_per_s") or name.startswith("times_")
        shown = compact if is_number else _seconds
        return f"{shown(value['median'])} ({shown(value['min'])} to {shown(value['max'])})"
    if name in _MILLISECONDS:
        return f"{value:.3g} ms" if value < 1e3 else _seconds(1e-3 * value)
    if name.endswith("_scaling"):
        return f"{value:.2f}"
    if name == "sent_mib":
        return f"{value:.3g} MiB"
    if name.endswith("_mib"):
        return f"{value:,.0f} MiB"
    if name.startswith("us_per_"):
        return f"{value:.3g} µs"
    if name == "negatives_share":
        return f"{value:.1%}"
    if name.endswith("_s"):
        return _seconds(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _seconds(number: float) -> str:
    return f"{number:.3g} s" if number >= 0.1 else f"{1e3 * number:.3g} ms"

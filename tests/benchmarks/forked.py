"""The plain loop's process, forked with torch imported."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest

from tests.forks import PRELOADED


def fork_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `PlainProcess` fork its process, which otherwise imports torch for two seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    spawning = SimpleNamespace(get_context=lambda method: context)
    monkeypatch.setattr("benchmarks.plain_process.multiprocessing", spawning)

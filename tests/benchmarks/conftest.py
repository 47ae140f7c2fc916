"""The plain loop's process, forked with torch imported."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest

from tests.forks import PRELOADED


@pytest.fixture
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the process of `PlainProcess`, which otherwise imports torch for two seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    spawning = SimpleNamespace(get_context=lambda method: context)
    monkeypatch.setattr("benchmarks.plain_process.multiprocessing", spawning)

"""Fixtures of all tests: one thread, fixed seeds, small data."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from foretaste.ops.limits import LIMITS
from tests import programs
from tests.browser import LIMIT_MS
from tests.kinds import is_quick
from tests.messages import Messages

pytest.register_assert_rewrite("foretaste.testing")
settings.register_profile("foretaste", deadline=None, derandomize=True, database=None)
settings.load_profile("foretaste")

# A suite in the background of a script starts with SIGINT ignored, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Garbage collection is slow with the suite's many modules, so it runs seldom.
gc.set_threshold(20_000, 20, 100)

# Test workers share the cores, and so do the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Messages())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without quick tests if only quick tests are asked for."""
    if not re.fullmatch(r"quick( and (not )?\w+)*", config.option.markexpr):
        return None
    paths = [collection_path, *collection_path.rglob("test_*.py")]
    return None if any(is_quick(path) for path in paths if path.suffix == ".py") else True


def pytest_collection_finish() -> None:
    """Freeze the imported modules and the tests, so that later collections skip them."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `make quick`."""
    for item in items:
        if is_quick(item.path):
            item.add_marker("quick")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Test workers share the cores; tiny tensors gain nothing from threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> Iterator[None]:
    """Syncing a file waits for the disk, and shows only after a loss of power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers in every test."""
    return np.random.default_rng(20260101)


@pytest.fixture
def generator() -> torch.Generator:
    """The same tensors in every test."""
    return torch.Generator().manual_seed(20260101)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces sizes of chunks on every device, until the end of the test."""

    def replace_limits(**sizes: int) -> None:
        for device, limits in LIMITS.items():
            monkeypatch.setitem(LIMITS, device, replace(limits, **sizes))

    return replace_limits


@pytest.fixture(params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device of this machine."""
    return torch.device(request.param)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser, started once for a module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = programs.find("chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, timeout=6 * LIMIT_MS)
        yield browser
        browser.close()

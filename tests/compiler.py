"""What tests of compiled code need: a C++ compiler, and TorchInductor's imports kept quiet."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests import programs

_HAS_COMPILER = any(shutil.which(name) for name in ("g++", "clang++", "cl"))


def compiling(test: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that hands code to torch.compile."""
    for mark in (
        pytest.mark.skipif(programs.MAY_BE_MISSING and not _HAS_COMPILER, reason="no C++ compiler"),
        pytest.mark.slow,
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),
        pytest.mark.filterwarnings("ignore::FutureWarning"),
        pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    ):
        test = mark(test)
    return test

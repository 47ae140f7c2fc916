"""Programs that some tests need: without them tests are skipped, but fail in `.ci/run`."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

MAY_BE_MISSING = not os.environ.get("FORETASTE_REQUIRE_PROGRAMS")
"""False in `.ci/run`, which installs all of them."""


def missing(program: str) -> NoReturn:
    """Skip the test that needs a program, or fail it if all programs must be installed."""
    message = f"{program} is not installed, which this test needs"
    if MAY_BE_MISSING:
        pytest.skip(message)
    pytest.fail(message)


def find(program: str) -> str:
    """The path of a program that a test needs."""
    return shutil.which(program) or missing(program)

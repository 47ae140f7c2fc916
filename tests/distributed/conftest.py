"""The datasets of the trainings of one process."""

from __future__ import annotations

from tests.training.conftest import *  # noqa: F403

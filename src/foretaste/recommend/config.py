"""Settings of answers, which the command line reads without NumPy and Arrow."""

from __future__ import annotations

from typing import Literal

Unknown = Literal["error", "skip", "popular"]
"""Treatment of users that a run does not know: refused, left out or in popularity order."""

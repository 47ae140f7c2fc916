"""Settings of answers, importable without NumPy and Arrow, for the command line's help."""

from __future__ import annotations

from typing import Literal

Unknown = Literal["error", "skip", "popular"]
"""Treatment of users unknown to a run: an error, no answer, or popularity order."""

"""Defaults of searches and competitions.

Imports no torch, so that help shows them at once.
"""

from __future__ import annotations

from pathlib import Path

TRIALS = 20
"""Trainings of a search."""

SEARCHES = Path("searches")
"""Directory of searches whose own is not named."""

COMPETITIONS = Path("competitions")
"""Directory of competitions whose own is not named."""

"""Defaults of searches and competitions, importable without torch, for the command line's help."""

from __future__ import annotations

from pathlib import Path

TRIALS = 20
"""Default number of trials of a search."""

SEARCHES = Path("searches")
"""Default directory of searches."""

COMPETITIONS = Path("competitions")
"""Default directory of competitions."""

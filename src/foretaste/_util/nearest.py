"""Names that may have been meant by one that is not there."""

from __future__ import annotations

import os
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_NUM_LOOKED_AT = 10_000
"""Of the entries of a folder."""


def did_you_mean(path: Path, *, holding: str = "") -> str:
    """``; did you mean runs/vae?``, by the names beside a path that is not there; else nothing.

    Only directories with a file named ``holding`` are meant, where that is given.
    """
    if any(sign in path.name for sign in "*?["):
        return ""
    # A folder that cannot be read, or a path that the system has no words for, has no names.
    with suppress(OSError, ValueError):
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, _NUM_LOOKED_AT)]
        for name in get_close_matches(path.name, names, n=10):
            if not holding or (path.parent / name / holding).is_file():
                return f"; did you mean {path.parent / name}?"
    return ""

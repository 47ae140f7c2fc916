"""A run that takes the place of an earlier one: trained beside it, put there once it is finished.

Until then the earlier run stays as it is and answers. A training that is killed leaves it alone,
and goes on by ``train --resume`` like any other.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from foretaste._util.atomic import is_empty_directory, replace_directory
from foretaste.errors import RunError
from foretaste.runs.files import writing
from foretaste.runs.lock import training_lock
from foretaste.runs.paths import CONFIG, check_is_new
from foretaste.runs.run import Run

_BESIDE = re.compile(r"\.(.+)\.next")


def place_to_train(path: Path, *, overwrite: bool) -> Path:
    """Where the run that is to be at ``path`` is trained: there, or beside the run it replaces.

    Raises RunError where ``path`` holds anything but a run to ``overwrite``, or either place is
    being trained into. What an earlier training to replace that run left unfinished is removed.
    """
    path = path.resolve() if path.is_symlink() else path
    if not overwrite or not path.exists() or is_empty_directory(path):
        check_is_new(path)
        return path
    if not (path / CONFIG).is_file():
        raise RunError(
            f"{path} is no run, and nothing else is replaced; choose another directory or remove it"
        )
    with training_lock(path):
        beside = path.with_name(f".{path.name}.next")
    if beside.exists():
        with training_lock(beside), writing(beside):
            shutil.rmtree(beside)
    return beside


def place_to_take(path: Path) -> Path | None:
    """The place that a run trained at ``path`` takes in the end; None where it stays."""
    found = _BESIDE.fullmatch(path.name)
    return path.with_name(found[1]) if found else None


def in_its_place(run: Run) -> Run:
    """A finished run where it belongs; the one it replaces is removed."""
    place = place_to_take(run.path)
    if place is None:
        return run
    with writing(place):
        replace_directory(run.path, place)
    return Run(place, run.config)

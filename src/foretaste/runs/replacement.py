"""A run that takes the place of an earlier one: trained beside it, put there once it is finished.

Until then the earlier run stays as it is and answers. A training that is killed leaves it alone,
and goes on by ``train --resume`` like any other.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foretaste._util.atomic import is_empty_directory, remove_leftovers, replace_directory
from foretaste._util.files import followed
from foretaste.errors import RunError
from foretaste.runs.config import FORMAT
from foretaste.runs.log import MetricsLog
from foretaste.runs.paths import (
    CONFIG,
    METRICS,
    check_is_new,
    resume_command,
    training_lock,
    writing,
)
from foretaste.runs.run import Run

_MARK = f'"format": "{FORMAT}"'.encode()
_MOST_LOOKED_AT = 1 << 24
_BESIDE = re.compile(r"\.(.+)\.next")


def place_to_train(path: Path, *, overwrite: bool) -> Path:
    """The path to train the run at that is to be at ``path``: there, or beside the run it replaces.

    Raises RunError where ``path`` holds anything but a run to ``overwrite``, where either place is
    being trained into, or a finished run waits to be put there. Nothing is removed yet.
    """
    if path.is_symlink():
        try:
            path = followed(path)
        except OSError as error:
            raise RunError(
                f"{path} cannot be written: {error.strerror}; name another directory"
            ) from error
    if place_to_take(path) is not None:
        raise RunError(
            f"{path} is named as what replaces {place_to_take(path)} in the end; name another"
        )
    remove_leftovers(path)
    if not overwrite or not path.exists() or is_empty_directory(path):
        check_is_new(path)
        return path
    _check_is_run(path)
    with training_lock(path):
        beside = path.with_name(f".{path.name}.next")
    if beside.exists():
        _check_is_run(beside)
        with _unfinished(beside):
            pass
    return beside


def make_room(path: Path) -> None:
    """Remove what an earlier training to replace a run left unfinished where one is to be trained.

    Raises RunError where it is being trained or finished: then it is about to take its place.
    """
    if place_to_take(path) is not None and path.exists():
        with _unfinished(path), writing(path):
            shutil.rmtree(path)


def place_to_take(path: Path) -> Path | None:
    """The place that a run trained at ``path`` takes in the end; None where it stays."""
    found = _BESIDE.fullmatch(path.name)
    return path.with_name(found[1]) if found else None


@contextmanager
def _unfinished(path: Path) -> Iterator[None]:
    """Keep trainings out of a run that is not finished; RunError where it is, or is trained."""
    with training_lock(path):
        if MetricsLog(path / METRICS).is_finished:
            raise RunError(
                f"{path} is finished and waits to take the place of {place_to_take(path)}; put it "
                f"there with {resume_command(path)}, or remove it"
            )
        yield


def in_its_place(run: Run) -> Run:
    """A finished run where it belongs; the one it replaces is removed."""
    place = place_to_take(run.path)
    if place is None:
        return run
    if os.path.lexists(place) and not is_empty_directory(place):
        _check_is_run(place)
    with writing(place):
        replace_directory(run.path, place)
    return Run(place, run.config)


def _check_is_run(path: Path) -> None:
    """RunError for anything but a run: other programs have files called config.json too."""
    with suppress(OSError), (path / CONFIG).open("rb") as file:
        if _MARK in file.read(_MOST_LOOKED_AT):
            return
    raise RunError(
        f"{path} is no run, and nothing else is replaced; choose another directory or remove it"
    )

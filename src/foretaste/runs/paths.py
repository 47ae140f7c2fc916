"""Paths of runs and of their files: names that are free, and errors that name what fails."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from foretaste._util.atomic import atomic_directory, is_empty_directory
from foretaste._util.files import is_name_text
from foretaste.errors import RunError

CONFIG = "config.json"
METRICS = "metrics.jsonl"


def resume_command(path: Path) -> str:
    """The command that goes on with the training of the run at ``path``."""
    return shlex.join(["foretaste", "train", "--resume", str(path)])


def check_is_new(path: Path) -> None:
    """RunError where ``path`` exists, unless it is an empty directory, or is no UTF-8 text."""
    if not is_name_text(path):
        raise RunError(f"{path} cannot be written: its name is not UTF-8 text; name another")
    if path.exists() and not is_empty_directory(path):
        raise RunError(
            f"{path} exists already, and a run is never written over without --overwrite "
            "(overwrite=True in Python); choose another directory or remove it"
        )


@contextmanager
def new_run_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to write a run to, which then becomes ``path`` at one stroke.

    Raises RunError when ``path`` exists and is not an empty directory, or cannot be written.
    """
    check_is_new(path)
    try:
        with atomic_directory(path) as temporary:
            yield temporary
    except FileExistsError:
        check_is_new(path)
        raise RunError(
            f"{path} cannot be replaced, though it is empty; name a directory in it"
        ) from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def default_run_name(model: str, dataset_name: str, now: datetime) -> str:
    """``model-dataset-time``, the name of a run that was given none."""
    return f"{model}-{dataset_name}-{now:%Y%m%d-%H%M%S}"


def unused_run_path(root: Path, name: str) -> Path:
    """``root/name``, or ``root/name-2``, ``-3``, ... where that is taken."""
    path = root / name
    number = 2
    while path.exists():
        path = root / f"{name}-{number}"
        number += 1
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """RunError where ``path`` is missing, is no regular file or cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: the run is not whole") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """RunError where ``path`` cannot be written, such as on a full disk."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error

"""Files of a run that cannot be read or written, as RunErrors that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foretaste.errors import RunError


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


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with writing(path):
        path.unlink(missing_ok=True)

"""Writing a directory so that it is there complete or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foretaste._util.atomic import atomic_directory, remove_leftovers
from foretaste.data.manifest import FILE_NAME
from foretaste.errors import DatasetError

_ITEMS = "items.parquet"
_MARK = b'"created_by": "foretaste '
_MOST_LOOKED_AT = 1 << 24

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_name_text(path: Path) -> bool:
    """Whether the engine can be told this path: UTF-8 text without a NUL character."""
    try:
        return b"\0" not in str(path).encode()
    except UnicodeEncodeError:
        return False


def real_path(path: Path | str) -> str:
    """Where a file lies, from the root: neither DuckDB nor Arrow takes a part of it for a home
    folder or a protocol, as they do with ``~/a.csv`` and ``file:/a.csv``."""
    return os.path.realpath(path)


def why_not_written(error: OSError, elsewhere: str) -> str:
    """What is said of a path that cannot be written; ``elsewhere`` says how to choose another."""
    advice = f"make room, or {elsewhere}" if error.errno in _NO_ROOM else elsewhere
    return f"cannot be written: {error.strerror or error}; {advice}"


def check_output(output: Path, overwrite: bool) -> None:
    """Raise DatasetError where ``output`` may not be written.

    An empty directory may be filled; a prepared dataset is replaced only with ``overwrite``;
    anything else is never replaced. What a killed preparation of it left is put right first.
    """
    if not is_name_text(output):
        raise DatasetError(f"{output}: its name is not UTF-8 text; name another")
    remove_leftovers(output)
    try:
        is_new = not output.exists() and not output.is_symlink()
    except OSError as error:
        raise DatasetError(f"{output}: cannot be written: {error.strerror}") from None
    if is_new:
        return
    if not output.is_dir():
        raise DatasetError(f"{output}: is there already and is not a directory; name another")
    if not any(output.iterdir()):
        return
    if not is_dataset(output):
        raise DatasetError(
            f"{output}: is a directory with other files in it, which is never replaced; "
            "name another"
        )
    if not overwrite:
        raise DatasetError(
            f"{output}: holds a prepared dataset; replace it with --overwrite "
            "(overwrite=True in Python) or name another"
        )


def is_dataset(path: Path) -> bool:
    """Whether a directory was prepared here, even one that was damaged since: other programs have
    files called manifest.json too."""
    with suppress(OSError), (path / FILE_NAME).open("rb") as file:
        return (path / _ITEMS).is_file() or _MARK in file.read(_MOST_LOOKED_AT)
    return False


@contextmanager
def written_whole(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a directory to write into, which becomes ``output`` at the end.

    Whatever goes wrong before that, an interrupt included, leaves nothing behind.
    """
    check_output(output, overwrite)
    if output.is_symlink() or output.name in ("", ".."):
        output = output.resolve()
    new_parents = [parent for parent in output.parents if not parent.exists()]
    try:
        with atomic_directory(output, replace=True) as directory:
            yield directory
            check_output(output, overwrite)
    finally:
        for parent in new_parents:
            with suppress(OSError):
                parent.rmdir()

"""Writing so that a reader finds the whole of a file or directory, or nothing.

What is being written is in a holder, a directory ``.<letters>.tmp.<name>`` beside its place, with
whatever its writer keeps there too and a lock. The system drops the lock with the process, however
that ends; the next writer to the same place removes holders that no process owns.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foretaste._util.files import followed, locked_file
from foretaste._util.system import exchange, flush


@contextmanager
def atomic_file(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield an empty file of the same name to write to; then it is renamed onto ``path``.

    Unless it is to ``replace`` what is there, FileExistsError is raised where something is by then.
    The file gets the permissions of any new one, even from a writer that replaces it by a private
    one. It is on the disk before it is renamed. An exception leaves ``path`` as it was.
    """
    with _held(path) as temporary:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        flush(temporary)
        if replace:
            temporary.replace(path)
        else:
            _put_file(temporary, path)
        flush(path.parent)


@contextmanager
def atomic_directory(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a directory of the same name to write files to; then it becomes ``path``.

    All of it is on the disk before that. An exception leaves ``path`` as it was, and none of the
    folders above it that were made for it. Raises FileExistsError when ``path`` is there and not an
    empty directory, or when someone else made it meanwhile, unless it is to ``replace`` it. A link
    stays, and what it leads to is replaced.
    """
    is_named = path.name not in ("", "..")
    # A directory that somebody works in is not exchanged below them.
    replace = replace and is_named
    if path.exists() and not replace and not is_empty_directory(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if path.is_symlink() or not is_named:
        path = followed(path)
    new_parents = [parent for parent in path.parents if not parent.exists()]
    try:
        with _held(path, makes_parents=True) as temporary:
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):
                flush(file)
            flush(temporary)
            _put(temporary, path, temporary, replace=replace)
            flush(path.parent)
    except BaseException:
        for parent in new_parents:
            with suppress(OSError):
                parent.rmdir()  # only where nothing came to be in it
        raise


def replace_directory(new: Path, path: Path) -> None:
    """Put a directory beside ``path`` in its place; what was there is removed.

    Killed at any moment, it leaves one of the two there, or what the next writer brings back.
    """
    with _held(path) as held:
        _put(new, path, held, replace=True)
        if new.exists():  # exchanged: what was there goes with the holder
            new.rename(held)
        flush(path.parent)


def is_empty_directory(path: Path) -> bool:
    """True for a directory with nothing in it: a place for another."""
    return path.is_dir() and not any(path.iterdir())


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of ``path`` left beside it, all that no living process owns.

    Where one was killed as it replaced a directory, and nothing is there, the old one comes back.
    A file system without locks keeps what is left.
    """
    pattern = re.compile(rf"\.\w{{8}}\.tmp\.{re.escape(path.name)}")
    with suppress(OSError, ValueError):  # no such folder, or no such name
        with os.scandir(path.parent) as entries:
            leftovers = [
                path.parent / entry.name
                for entry in entries
                if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        for holder in leftovers:
            with suppress(OSError):  # what is not ours to remove
                lock = locked_file(holder / _lock_name(path), without_locks=False)
                if lock is not None:
                    _restore(holder / _previous_name(path), path)
                    _remove(holder, lock)


@contextmanager
def _held(path: Path, *, makes_parents: bool = False) -> Iterator[Path]:
    """Yield a path of the same name in a holder, which is gone afterwards.

    Errors within the block that name it, or what is beside it, come to name ``path``.
    """
    remove_leftovers(path)
    try:
        if makes_parents:
            with suppress(FileExistsError):
                path.parent.mkdir(parents=True)
        parent = os.path.realpath(path.parent)
        lock = None
        while lock is None:  # where another process took it for a leftover before it was locked
            made = tempfile.mkdtemp(prefix=".", suffix=f".tmp.{path.name}", dir=parent)
            holder = Path(made)
            try:
                lock = locked_file(holder / _lock_name(path), without_locks=True)
            finally:
                if lock is None:
                    shutil.rmtree(holder, ignore_errors=True)
        try:
            yield holder / path.name
        finally:
            _remove(holder, lock)
    except Exception as error:
        _name_path(error, path)
        raise


def _lock_name(path: Path) -> str:
    return f"{path.name}.lock"


def _previous_name(path: Path) -> str:
    return f"{path.name}.previous"


def _remove(holder: Path, lock: int) -> None:
    try:
        shutil.rmtree(holder, ignore_errors=True)
    finally:
        os.close(lock)
        # A signal may have come in between, and Windows removes nothing that is open.
        shutil.rmtree(holder, ignore_errors=True)


def _name_path(error: Exception, path: Path) -> None:
    """Have an error name ``path`` where it names a path in a holder."""
    parent, name = re.escape(os.path.realpath(path.parent).rstrip(os.sep)), re.escape(path.name)
    temporary = re.compile(rf"{parent}[/\\]\.\w{{8}}\.tmp\.{name}([/\\]{name}(\.lock)?)?")

    def named(value: object) -> object:
        is_text = isinstance(value, str | os.PathLike) and temporary.search(str(value))
        return temporary.sub(lambda _: str(path), str(value)) if is_text else value

    error.args = tuple(map(named, error.args))
    for attribute in ("strerror", "filename", "filename2"):
        if (value := getattr(error, attribute, None)) is not None:
            setattr(error, attribute, named(value))


def _put_file(new: Path, path: Path) -> None:
    """Put a file where nothing is."""
    try:
        os.link(new, path)  # of several writers one does; renaming would replace
    except OSError as error:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        new.rename(path)  # the file system has no links


def _put(new: Path, path: Path, held: Path, *, replace: bool) -> None:
    """Put a directory where nothing is, or an empty one, or in the place of another.

    The other one is then where the new one was, or beside ``held``, in the holder.
    """
    try:
        new.rename(path)
    except OSError as error:
        if not os.path.lexists(path):
            raise
        if not replace:
            raise FileExistsError(path) from error
        if exchange(new, path):
            return
        # `remove_leftovers` brings back what a kill between the two renames takes away.
        previous = held.with_name(_previous_name(path))
        try:
            path.rename(previous)
            new.rename(path)
        except BaseException:
            _restore(previous, path)
            raise


def _restore(previous: Path, path: Path) -> None:
    with suppress(FileNotFoundError):
        if not os.path.lexists(path):
            previous.rename(path)

"""Files: safe opening, locks, and atomic writing.

Only regular files are opened: a pipe is not waited for, a device not read, and nothing is written
through a link. The system holds the locks, so the lock file of a dead process blocks nobody.

A reader finds a whole file or directory, or nothing. A writer works in a holder, a locked directory
``.<letters>.tmp.<name>`` beside the final place. The system releases the lock with the process,
also after a kill. The next writer to the same place removes holders without a lock.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO

from foretaste._util.system import NO_LINK, NO_WAIT, exchange, flush, try_lock
from foretaste.errors import SettingError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, quota or file."""

SMALL_BYTES = 1 << 20
"""Most bytes of a file of rules or with a token, and those in which a file shows what it is."""


def is_name_text(path: Path) -> bool:
    """Return whether a path is UTF-8 text without a NUL character, as other libraries need."""
    try:
        return b"\0" not in str(path).encode()
    except UnicodeEncodeError:
        return False


def real_path(path: Path | str) -> str:
    """Return the absolute path, for DuckDB and Arrow."""
    # They take parts of relative paths for a home folder or a protocol: ``~/a.csv``, ``file:/a``.
    return os.path.realpath(path)


def resolve_links(path: Path) -> Path:
    """Return the absolute path without links; OSError for links in a circle."""
    with suppress(FileNotFoundError):
        # `stat` raises the OSError of a circle. `Path.resolve` raises RuntimeError or nothing, by
        # the version of Python.
        path.stat()
    return Path(os.path.realpath(path))


def without_links(path: Path) -> Path:
    """Return where a path leads now: absolute if the path has links, the path itself otherwise."""
    real = os.path.realpath(path)
    return path if real == os.path.abspath(path) else Path(real)  # noqa: PTH100


def unwritable_message(error: OSError, elsewhere: str) -> str:
    """Return the message about an unwritable path; ``elsewhere`` is the advice for another."""
    advice = f"make room, or {elsewhere}" if error.errno in NO_ROOM else elsewhere
    return f"cannot be written: {error.strerror or error}; {advice}"


def open_regular(path: Path) -> BufferedReader:
    """Open for reading a regular file, or a link to one."""
    return open(path, "rb", opener=_regular)


def open_own(path: Path, mode: str) -> IO[bytes]:
    """Open in a binary mode a regular file that is no link."""
    if path.is_symlink():
        raise OSError(errno.EINVAL, "it is a link, not a regular file", str(path))
    # A link that is made now is refused with the system's words.
    own = partial(_regular, more_flags=NO_LINK)
    file: IO[bytes] = open(path, mode, opener=own)  # noqa: SIM115 (the caller closes it)
    return file


def read_document(path: Path) -> str:
    """Return the UTF-8 text of a regular file, with its line ends unchanged."""
    with open_regular(path) as file:
        return file.read().decode()


def read_small(path: Path) -> bytes:
    """Return the bytes of a regular file, which has at most `SMALL_BYTES`."""
    with open_regular(path) as file:
        content = file.read(SMALL_BYTES + 1)
    if len(content) > SMALL_BYTES:
        raise OSError(errno.EFBIG, f"it is longer than {SMALL_BYTES >> 20} MiB", str(path))
    return content


def cache_directory() -> Path:
    """Return the cache folder: ``foretaste`` in ``XDG_CACHE_HOME``, by default in ``~/.cache``."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "foretaste"
    try:
        return Path.home() / ".cache" / "foretaste"
    except RuntimeError:
        raise SettingError(
            "there is no home directory for cached files; name a directory in XDG_CACHE_HOME"
        ) from None


def file_sha256(path: Path) -> str:
    """Return the sha256 of a regular file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _regular(path: str, flags: int, more_flags: int = 0) -> int:
    """Return a descriptor of a regular file, for `open`."""
    # The descriptor is looked at, and not the name, which may lead elsewhere a moment later.
    with suppress(IsADirectoryError):
        descriptor = os.open(path, flags | more_flags | NO_WAIT, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def locked_file(path: Path, *, without_locks: bool) -> int | None:
    """Return a descriptor of the file at ``path``, created if needed and locked until it is closed.

    None if another process has the lock, or removed the file or directory before it was locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        if try_lock(descriptor, without_locks=without_locks) and os.path.samestat(
            os.fstat(descriptor), path.lstat()
        ):
            return descriptor
    os.close(descriptor)
    return None


@contextmanager
def atomic_file(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield an empty file of the same name to write to; it is renamed to ``path`` at the end.

    Without ``replace``, FileExistsError is raised if ``path`` exists by then. The file has the
    permissions of a new file, even if its writer replaced it by a private one. It is synced to the
    disk before the rename. An exception leaves ``path`` unchanged.
    """
    with _hold(path) as temporary:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        flush(temporary)
        if replace:
            temporary.replace(path)
        else:
            _put_file(temporary, path)
        flush(path.parent)  # the new name is on the disk only with its folder


@contextmanager
def atomic_directory(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a directory of the same name to write files to; it becomes ``path`` at the end.

    All files are synced to the disk before that. An exception leaves ``path`` unchanged, and
    removes the folders that were made above it. Without ``replace``, FileExistsError is raised if
    ``path`` is more than an empty directory, at the beginning or at the end. A link stays, and its
    target is replaced.
    """
    is_named = path.name not in ("", "..")
    # The working directory ("." or "..") is never exchanged: its processes would stay in the old
    # one.
    replace = replace and is_named
    if path.exists() and not replace and not is_empty_directory(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if path.is_symlink() or not is_named:
        path = resolve_links(path)
    new_parents = [parent for parent in path.parents if not parent.exists()]
    try:
        with _hold(path, makes_parents=True) as temporary:
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):
                flush(file)
            flush(temporary)
            _put(temporary, path, temporary.with_name(_previous_name(path)), replace=replace)
            flush(path.parent)
    except BaseException:
        for parent in new_parents:
            with suppress(OSError):
                parent.rmdir()  # fails, and may, if another process has written into it
        raise


def replace_directory(new: Path, path: Path) -> None:
    """Move the directory ``new``, which is beside ``path``, to ``path``, and remove the one there.

    After a kill at any moment one of the two is at ``path``, or `remove_leftovers` puts it back.
    """
    with _hold(path) as held:
        _put(new, path, held.with_name(_previous_name(path)), replace=True)
        if new.exists():  # exchanged: the replaced directory goes with the holder
            new.rename(held)
        flush(path.parent)


def make_folders(path: Path) -> None:
    """Make a directory and those above it, and sync the names of the new ones to the disk."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        flush(folder.parent)


def is_empty_directory(path: Path) -> bool:
    """Return True for an empty directory, which another may replace."""
    return path.is_dir() and not any(path.iterdir())


def remove_leftovers(path: Path) -> None:
    """Remove the holders that killed writers of ``path`` left beside it.

    If a writer was killed as it replaced a directory, and ``path`` is gone, the old directory is
    put back. A file system without locks keeps the leftovers.
    """
    pattern = re.compile(rf"\.\w{{8}}\.tmp\.{re.escape(path.name)}")
    with suppress(OSError, ValueError):  # no such folder, or an impossible name
        with os.scandir(path.parent) as entries:
            leftovers = [
                path.parent / entry.name
                for entry in entries
                if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        for holder in leftovers:
            with suppress(OSError):  # a holder of another user
                lock = locked_file(holder / _lock_name(path), without_locks=False)
                if lock is not None:
                    _restore(holder / _previous_name(path), path)
                    _remove(holder, lock)


@contextmanager
def _hold(path: Path, *, makes_parents: bool = False) -> Iterator[Path]:
    """Yield a path of the same name in a holder, which is removed afterwards.

    Errors in the block that name a path in the holder are changed to name ``path``.
    """
    remove_leftovers(path)
    try:
        if makes_parents:
            with suppress(FileExistsError):
                make_folders(path.parent)
        parent = os.path.realpath(path.parent)
        lock = None
        # Another process may take the holder for a leftover before it is locked; then try again.
        while lock is None:
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
        # Again, because a signal may have interrupted the first, and Windows removes no open file.
        shutil.rmtree(holder, ignore_errors=True)


def _name_path(error: Exception, path: Path) -> None:
    """Replace paths in a holder by ``path`` in an error's texts."""
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
    """Move a file to ``path``; FileExistsError if something is there."""
    try:
        # A link fails if `path` exists, so of several writers one succeeds. A rename would replace.
        os.link(new, path)
    except OSError as error:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        new.rename(path)  # the file system has no links


def _put(new: Path, path: Path, previous: Path, *, replace: bool) -> None:
    """Move a directory to ``path``, which may be absent, empty or, with ``replace``, hold another
    directory. The replaced directory is then at ``new``, or at ``previous`` in a holder."""
    try:
        new.rename(path)  # the system refuses to replace a directory that is not empty
    except OSError as error:
        if not os.path.lexists(path):
            raise
        if not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        if exchange(new, path):
            return
        # Without an exchange of names there is a gap between two renames. After a kill in it,
        # `remove_leftovers` puts the old directory back.
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

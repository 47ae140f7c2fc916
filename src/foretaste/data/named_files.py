"""Where the files of a named set are: given, downloaded, unpacked."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from foretaste._util.files import try_lock
from foretaste.data.directory import why_not_written, written_whole
from foretaste.data.downloads import download, file_md5
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.named_sets import NamedSet
    from foretaste.data.progress import Progress

URL_VARIABLE = "FORETASTE_MOVIELENS_URL"
"""Names another server that has the same archives, by the address of their folder."""

_WAIT_S = 0.2

_URL = "https://files.grouplens.org/datasets/movielens"


def find_files(
    named: NamedSet, source_dir: Path | str | None, tell: Progress
) -> tuple[Path, Path | None]:
    """The set's files of interactions and of items, downloaded and unpacked if need be.

    With ``source_dir`` they, or the archive, are taken from there and nothing is downloaded; there
    the items may be missing. Downloads are kept, unpacked, in ``cache_directory()``.

    Raises InputError where the set cannot be had.
    """
    if source_dir is not None:
        folder = _given(named, Path(source_dir), tell)
    elif named.is_unpacked_here:
        folder = Path(named.name)
    else:
        folder = _cached(named, None, tell)
    items = folder / named.items
    return folder / named.interactions, items if items.is_file() else None


def cache_directory() -> Path:
    """Where downloads are kept: ``foretaste`` in ``XDG_CACHE_HOME``, ``~/.cache`` unless set."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "foretaste"
    try:
        return Path.home() / ".cache" / "foretaste"
    except RuntimeError:
        raise SettingError(
            "there is no home directory to keep downloads in; name one in XDG_CACHE_HOME"
        ) from None


def _given(named: NamedSet, source_dir: Path, tell: Progress) -> Path:
    """The folder of the files, once what lies in ``source_dir`` is unpacked."""
    for folder in (source_dir, source_dir / named.name):
        if (folder / named.interactions).is_file():
            return folder
    archive = source_dir / named.archive
    if not archive.is_file():
        raise InputError(
            f"{source_dir}: has neither {named.archive} nor {named.interactions}, and with "
            "source_dir nothing is downloaded"
        )
    return _cached(named, archive, tell)


def _cached(named: NamedSet, archive: Path | None, tell: Progress) -> Path:
    """The folder of the files in the cache, unpacked from ``archive`` or a download."""
    cache = cache_directory()
    folder = cache / named.name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f".{named.name}.lock", tell):
            if not (folder / named.interactions).is_file():
                downloaded = cache / named.archive
                if archive is None and not downloaded.is_file():
                    _download(named, downloaded, tell)
                else:
                    _check(named, archive or downloaded, tell)
                tell(f"unpack {named.archive}")
                _unpack(named, archive or downloaded, folder)
                downloaded.unlink(missing_ok=True)
    except OSError as error:
        why = why_not_written(error, "keep downloads elsewhere with XDG_CACHE_HOME")
        raise InputError(f"{error.filename or folder}: {why}") from None
    return folder


def _download(named: NamedSet, target: Path, tell: Progress) -> None:
    address = os.environ.get(URL_VARIABLE) or _URL
    if not address.startswith(("http://", "https://")):
        raise SettingError(f"{URL_VARIABLE} is {address!r}; it must begin with http:// or https://")
    download(
        f"{address.rstrip('/')}/{named.archive}",
        target,
        md5=named.md5,
        otherwise=f"get {named.archive} by other means and name its folder with --source-dir "
        f"(source_dir=... in Python), or name a mirror in {URL_VARIABLE}",
        tell=tell,
    )


def _check(named: NamedSet, archive: Path, tell: Progress) -> None:
    tell(f"check {archive.name}")
    found = file_md5(archive)
    if found != named.md5:
        raise InputError(
            f"{archive}: has md5 {found}, not {named.md5}: it is damaged or another archive; "
            "remove it, or replace it by the right one"
        )


def _unpack(named: NamedSet, archive: Path, folder: Path) -> None:
    """Take the two files, and nothing else, out of the archive."""
    with zipfile.ZipFile(archive) as packed, written_whole(folder, overwrite=False) as directory:
        for name in (named.interactions, named.items):
            with (
                packed.open(f"{named.name}/{name}") as member,
                (directory / name).open("wb") as file,
            ):
                shutil.copyfileobj(member, file, 1 << 20)


@contextmanager
def _alone(lock: Path, tell: Progress) -> Iterator[None]:
    """Keeps other processes from the same work while the block runs; waits for theirs to end."""
    with lock.open("ab") as file:
        if not try_lock(file.fileno()):
            tell("wait for another process that does the same")
            while not try_lock(file.fileno()):
                time.sleep(_WAIT_S)
        yield

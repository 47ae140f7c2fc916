"""MovieLens by name: the formats of its files, their download, unpacking and preparation."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from foretaste import __version__
from foretaste._util.files import atomic_directory, atomic_file, cache_directory, unwritable_message
from foretaste._util.formatting import did_you_mean
from foretaste.data.config import FileFormat, PrepareConfig, Progress
from foretaste.data.manifest import check_output
from foretaste.errors import DatasetError, InputError, SettingError

URL_VARIABLE = "FORETASTE_MOVIELENS_URL"
"""Environment variable with the address of another folder of the same archives."""

_URL = "https://files.grouplens.org/datasets/movielens"

# A name that may mean a set or a folder: without the ending of a file or the * of a pattern.
_WORD = re.compile(r"[\w/-]{1,100}")
SILENCE_S = 30.0
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """One archive: its checksum, and its two files that are read."""

    name: str
    """The name of the set, of its archive, and of the folder in the archive."""

    md5: str
    """Checksum that is published beside the archive."""

    interactions: str = "ratings.csv"
    items: str = "movies.csv"

    format: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a preparation for the format of the interactions."""

    items_format: FileFormat = field(default_factory=FileFormat)
    """The format of the items."""

    num_heldout_users: int | None = None
    """Number of users that the reference holds out for validation, and again for test, under
    held-out-users."""

    @property
    def archive(self) -> str:
        return f"{self.name}.zip"

    def settings(self, config: PrepareConfig) -> PrepareConfig:
        """Return ``config`` with the set's format and the reference's filters as defaults.
        SettingError if ``config`` contradicts the format of the files."""
        settings = {"layout": "pairs", **self.format}
        for setting, value in settings.items():
            wanted = getattr(config, setting)
            if wanted not in (getattr(PrepareConfig, setting), value):
                raise SettingError(
                    f"{setting} is {wanted!r}, but the format of {self.name} is known; leave it out"
                )
        if config.filters == "auto":
            settings["filters"] = "reference"
        if config.protocol == "held-out-users" and config.num_heldout_users is None:
            settings["num_heldout_users"] = self.num_heldout_users
        return replace(config, **settings)


_COLUMNS = ("user_id", "item_id", "rating", "timestamp")

# The checksums come from the .md5 files beside the archives.
NAMED_SETS = {
    named.name: named
    for named in (
        NamedSet(
            name="ml-100k",
            md5="0e33842e24a9c977be4e0107933c0723",
            interactions="u.data",
            items="u.item",
            format={"delimiter": "\t", "columns": _COLUMNS},
            items_format=FileFormat(
                delimiter="|",
                columns=("item_id", "title", "release_date", *["-"] * 21),
                encoding="latin-1",
                quote="none",
            ),
        ),
        NamedSet(
            name="ml-1m",
            md5="c4d9eecfca2ab87c1945afe126590906",
            interactions="ratings.dat",
            items="movies.dat",
            format={"delimiter": "::", "columns": _COLUMNS},
            items_format=FileFormat(
                delimiter="::", columns=("item_id", "title", "genres"), encoding="latin-1"
            ),
        ),
        NamedSet(name="ml-20m", md5="cd245b17a1ae2cc31bb14903e1204af3", num_heldout_users=10_000),
        NamedSet(name="ml-25m", md5="6b51fb2759a8657d3bfcbfc42b592ada"),
        NamedSet(name="ml-32m", md5="d472be332d4daa821edc399621853b57"),
    )
}


def named_set(source: Any, source_dir: Path | str | None = None) -> NamedSet | None:
    """Return the set that ``source`` names; None for a path or any other source.

    A file or folder with the name of a set is taken in place of the set, unless it is the unpacked
    set itself. Raises SettingError if ``source_dir`` is given for another source, InputError for a
    word that names neither a set nor a file or folder.
    """
    if isinstance(source, Sequence) and not isinstance(source, str) and len(source) == 1:
        source = source[0]
    named = NAMED_SETS.get(str(source)) if isinstance(source, str | Path) else None
    if source_dir is not None:
        if named is None:
            raise SettingError(
                "--source-dir (source_dir=... in Python) is for the named sets only, "
                f"{', '.join(NAMED_SETS)}; leave it out if you give your own files"
            )
        return named
    is_word = isinstance(source, str | Path) and _WORD.fullmatch(str(source))
    # Unlike `Path.exists`, `os.path.exists` raises nothing for a folder without permission.
    if named is None and is_word and not os.path.exists(source):  # noqa: PTH110
        raise InputError(
            f"{source}: there is no such file or folder, nor a named set of that name; the named "
            f"sets are {', '.join(NAMED_SETS)}{did_you_mean(Path(source))}"
        )
    if named is None or not (own := Path(named.name)).exists():
        return named
    return named if _unpacked_folders(named, own) else None


def find_files(
    named: NamedSet, source_dir: Path | None, progress: Progress
) -> tuple[Path, Path | None]:
    """Return the set's files of interactions and of items, downloaded and unpacked if needed.

    With ``source_dir`` the files, or the archive, come from that folder without a download; the
    file of items may then be missing. Downloads are kept, unpacked, in
    ``cache_directory()``.

    Raises InputError if the files cannot be found or downloaded.
    """
    own = Path(named.name)
    here = [own] if source_dir is None else [Path(source_dir), source_dir / own]
    unpacked = _unpacked_folders(named, *here)
    folder = unpacked[0] if unpacked else _unpack(named, source_dir, progress)
    items = folder / named.items
    return folder / named.interactions, items if items.is_file() else None


def _unpacked_folders(named: NamedSet, *places: Path) -> list[Path]:
    """Return the folders with a set's files: the places, and NVIDIA's folders below them."""
    folders = [folder for place in places for folder in (place, place / "extracted" / named.name)]
    return [folder for folder in folders if (folder / named.interactions).is_file()]


def _unpack(named: NamedSet, source_dir: Path | None, progress: Progress) -> Path:
    """Return the folder of the files in the cache, unpacked from a local or downloaded archive."""
    if source_dir is not None and not (source_dir / named.archive).is_file():
        raise InputError(
            f"{source_dir}: has neither {named.archive} nor {named.interactions}; put one of them "
            "there, or leave out --source-dir (source_dir=... in Python) to download"
        )
    cache = cache_directory()
    folder, downloaded = cache / named.name, cache / named.archive
    archive = downloaded if source_dir is None else source_dir / named.archive
    if (folder / named.interactions).is_file():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        check_output(folder, overwrite=False)
        _check_or_download(named, archive, progress)
        progress(f"unpack {named.archive}")
        with zipfile.ZipFile(archive) as packed, atomic_directory(folder) as directory:
            # Only two named members are unpacked: other names in an archive are never written.
            for name in (named.interactions, named.items):
                with (
                    packed.open(f"{named.name}/{name}") as member,
                    (directory / name).open("wb") as file,
                ):
                    shutil.copyfileobj(member, file, 1 << 20)
        downloaded.unlink(missing_ok=True)
    except (OSError, DatasetError) as error:
        if (folder / named.interactions).is_file():  # another process has unpacked it
            return folder
        if isinstance(error, DatasetError):
            raise
        why = unwritable_message(error, "keep downloads elsewhere with XDG_CACHE_HOME")
        raise InputError(f"{error.filename or folder}: {why}") from None
    return folder


def _check_or_download(named: NamedSet, archive: Path, progress: Progress) -> None:
    if archive.is_file():
        progress(f"check {archive.name}")
        found = file_md5(archive)
        if found != named.md5:
            raise InputError(
                f"{archive}: has md5 {found}, not {named.md5}: it is damaged or another archive; "
                "remove it, or replace it by the right one"
            )
        return
    address = os.environ.get(URL_VARIABLE) or _URL
    if not address.startswith(("http://", "https://")):
        raise SettingError(f"{URL_VARIABLE} is {address!r}; it must begin with http:// or https://")
    download(
        f"{address.rstrip('/')}/{named.archive}",
        archive,
        md5=named.md5,
        otherwise=f"get {named.archive} by other means and name its folder with --source-dir "
        f"(source_dir=... in Python), or name a mirror in {URL_VARIABLE}",
        progress=progress,
    )


def download(url: str, target: Path, *, md5: str, otherwise: str, progress: Progress) -> None:
    """Download ``url`` into ``target``, which appears complete with the right md5 or not at all.

    ``md5`` is in hexadecimal; ``otherwise`` tells, in an error, another way to get the file. Raises
    InputError if the server refuses, falls silent or cannot be reached, and if the md5 differs.
    """
    request = Request(url, headers={"User-Agent": f"foretaste/{__version__}"})
    with atomic_file(target) as temporary:
        with temporary.open("wb") as file:
            for block in _blocks(request, otherwise):
                file.write(block)
                progress(f"download {target.name}: {file.tell() / 1e6:,.1f} MB")
        progress(f"check {target.name}")
        found = file_md5(temporary)
        if found != md5:
            raise InputError(
                f"{url}: the download has md5 {found}, not {md5}: it was damaged on the way or is "
                f"another file, and nothing of it was kept. Try again, or {otherwise}"
            )


def _blocks(request: Request, otherwise: str) -> Iterator[bytes]:
    """Yield the blocks of the response; InputError if the download fails."""
    try:
        with urlopen(request, timeout=SILENCE_S) as response:
            while block := response.read(BLOCK_BYTES):
                yield block
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):  # the error holds the connection
            error.close()
        raise InputError(
            f"{request.full_url}: cannot be downloaded: {error}. Try again, or {otherwise}"
        ) from None


def file_md5(path: Path) -> str:
    """Return the md5 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        # MD5 is the checksum published beside the archives: it shows damage, but no forgery.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()

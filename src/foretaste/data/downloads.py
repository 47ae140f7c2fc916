"""Download of a file, checked against its published md5."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from foretaste import __version__
from foretaste._util.atomic import atomic_file
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.config import Progress

_SILENCE_S = 30.0
_BLOCK_BYTES = 1 << 20


def download(url: str, target: Path, *, md5: str, otherwise: str, progress: Progress) -> None:
    """Download ``url`` into ``target``, which appears whole and with the right md5 or not at all.

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
                f"{url}: what came has md5 {found}, not {md5}: it was damaged on the way or is "
                f"another file, and nothing of it was kept. Try again, or {otherwise}"
            )


def _blocks(request: Request, otherwise: str) -> Iterator[bytes]:
    """The content; InputError if it does not come."""
    try:
        with urlopen(request, timeout=_SILENCE_S) as response:
            while block := response.read(_BLOCK_BYTES):
                yield block
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):  # holds the connection
            error.close()
        raise InputError(
            f"{request.full_url}: cannot be downloaded: {error}. Try again, or {otherwise}"
        ) from None


def file_md5(path: Path) -> str:
    """The md5 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()

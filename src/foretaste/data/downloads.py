"""A file from the network: resumed after a cut, and checked against the sum published for it."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from foretaste import __version__
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.config import Progress

_SILENCE_S = 30.0
_MAX_ATTEMPTS = 5
_BLOCK_BYTES = 1 << 20
_BETWEEN_REPORTS_S = 0.2
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


class _CutError(Exception):
    """The rest of a file did not come."""


def download(url: str, target: Path, *, md5: str, otherwise: str, progress: Progress) -> None:
    """Fetch ``url`` into ``target``, which is there whole and with the right sum or not at all.

    What has come so far lies beside it with ``.part`` at the end, where the next call goes on, as
    this one does when the connection is cut. ``md5`` is in hexadecimal; ``otherwise`` says in an
    error how else the file can be had.

    Raises InputError where the server refuses, falls silent or cannot be reached, where the sum is
    another (the file is removed then), and where the disk cannot take the file.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        _fetch(url, part, otherwise, progress)
        progress(f"check {target.name}")
        found = file_md5(part)
        if found != md5:
            part.unlink()
            raise InputError(
                f"{url}: what came has md5 {found}, not {md5}: it was damaged on the way or is "
                f"another file, and nothing of it was kept. Try again, or {otherwise}"
            )
        part.replace(target)
    except OSError as error:
        raise InputError(
            f"{part}: cannot be written: {error.strerror}; what is there is kept, and the same "
            "command goes on from it"
        ) from None


def file_md5(path: Path) -> str:
    """The md5 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch(url: str, part: Path, otherwise: str, progress: Progress) -> None:
    """Bring ``part`` to its full length, asking again after a cut as long as anything comes."""
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        response = _request(url, _size(part), otherwise)
        if response is None:
            return
        received = _Received(part, progress)
        try:
            with response:
                received.take(response)
            return
        except _CutError as cut:
            if not received.num_bytes or attempt == _MAX_ATTEMPTS:
                raise InputError(
                    f"{url}: {cut}. {_megabytes(_size(part))} MB of it are in {part}, and the same "
                    f"command goes on from there; or {otherwise}"
                ) from None


def _request(url: str, start: int, otherwise: str) -> HTTPResponse | None:
    """The answer to a request for everything from byte ``start`` on; None if that is nothing."""
    headers = {"User-Agent": f"foretaste/{__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_SILENCE_S)
        return response
    except HTTPError as error:
        error.close()
        if start and error.code == _RANGE_NOT_SATISFIABLE:
            return None
        problem = f"the server answers {error.code} {error.reason}"
    except TimeoutError:
        problem = f"the server is silent for {_SILENCE_S:g} s"
    except URLError as error:
        problem = f"cannot be reached: {error.reason}"
    except (OSError, HTTPException) as error:
        problem = f"the server's answer cannot be read: {error!r}"
    raise InputError(f"{url}: {problem}. Try again, or {otherwise}")


class _Received:
    """The bytes that one request adds to a file."""

    def __init__(self, part: Path, progress: Progress) -> None:
        self.num_bytes = 0
        self._part = part
        self._progress = progress
        self._reported_at = -_BETWEEN_REPORTS_S

    def take(self, response: HTTPResponse) -> None:
        """Write what comes; _CutError where it ends too soon."""
        # A server that always sends everything begins at byte 0.
        start = 0
        if response.status == _PARTIAL_CONTENT:
            found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            start = int(found[1]) if found else 0
        end = None if response.length is None else start + response.length
        with self._part.open("r+b" if self._part.exists() else "wb") as file:
            file.seek(start)
            file.truncate()
            for block in _blocks(response):
                file.write(block)
                self.num_bytes += len(block)
                if time.monotonic() - self._reported_at >= _BETWEEN_REPORTS_S:
                    self._reported_at = time.monotonic()
                    of_all = "" if end is None else f" of {_megabytes(end)}"
                    name = self._part.name.removesuffix(".part")
                    done = _megabytes(start + self.num_bytes)
                    self._progress(f"download {name}: {done}{of_all} MB")
        if end is not None and start + self.num_bytes < end:
            raise _CutError("the connection was cut")


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    """The body as it comes; _CutError where the connection fails."""
    while True:
        try:
            block = response.read1(_BLOCK_BYTES)
        except TimeoutError:
            raise _CutError(f"nothing came for {_SILENCE_S:g} s") from None
        except (OSError, HTTPException) as error:
            raise _CutError(f"the connection was cut ({error!r})") from None
        if not block:
            return
        yield block


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f}"

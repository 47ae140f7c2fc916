"""Download of a file: resumed after a cut, and checked against its published md5."""

from __future__ import annotations

import hashlib
import re
import time
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


def download(url: str, target: Path, *, md5: str, otherwise: str, progress: Progress) -> None:
    """Download ``url`` into ``target``, which appears whole and with the right md5 or not at all.

    The bytes received so far are in a file beside it that ends in ``.part``. This call continues
    from there when the connection is cut, and so does the next call. ``md5`` is in hexadecimal;
    ``otherwise`` tells, in an error, another way to get the file.

    Raises InputError if the server refuses, falls silent or cannot be reached, if the md5 differs
    (the file is then removed), and if the disk cannot take the file.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            response = _request(url, _size(part), otherwise)
            if response is None:
                break
            with response:
                num_bytes, problem = _receive(response, part, progress)
            if not problem:
                break
            # After a cut the rest is asked for again, as long as each attempt brings some bytes.
            if not num_bytes or attempt == _MAX_ATTEMPTS:
                raise InputError(
                    f"{url}: {problem}. {_megabytes(_size(part))} MB of it are in {part}; run the "
                    f"same command again to go on from there, or {otherwise}"
                )
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


def _request(url: str, start: int, otherwise: str) -> HTTPResponse | None:
    """The response with everything from byte ``start`` on; None if nothing is left."""
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


def _receive(response: HTTPResponse, part: Path, progress: Progress) -> tuple[int, str]:
    """Write the response to ``part``; the number of bytes, and the problem that ended it early."""
    # A server without ranges ignores the header and sends the whole file, from byte 0.
    start = 0
    if response.status == _PARTIAL_CONTENT:
        found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        start = int(found[1]) if found else 0
    end = None if response.length is None else start + response.length
    num_bytes, reported_at = 0, -_BETWEEN_REPORTS_S
    with part.open("r+b" if part.exists() else "wb") as file:
        file.seek(start)
        file.truncate()
        while True:
            try:
                block = response.read1(_BLOCK_BYTES)
            except TimeoutError:
                return num_bytes, f"nothing came for {_SILENCE_S:g} s"
            except (OSError, HTTPException) as error:
                return num_bytes, f"the connection was cut ({error!r})"
            if not block:
                break
            file.write(block)
            num_bytes += len(block)
            if time.monotonic() - reported_at >= _BETWEEN_REPORTS_S:
                reported_at = time.monotonic()
                of_all = "" if end is None else f" of {_megabytes(end)}"
                done = _megabytes(start + num_bytes)
                progress(f"download {part.name.removesuffix('.part')}: {done}{of_all} MB")
    is_cut = end is not None and start + num_bytes < end
    return num_bytes, "the connection was cut" if is_cut else ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f}"

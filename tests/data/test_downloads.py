"""Downloads against a server that cuts, stalls, refuses and lies."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretaste.data import downloads
from foretaste.data.downloads import download
from foretaste.errors import InputError
from tests.data.file_server import FileServer, serving

CONTENT = np.random.default_rng(3).bytes(400_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
OTHERWISE = "fetch it yourself"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving({"/set.zip": CONTENT}) as server:
        yield server


@pytest.fixture
def fetch(server: FileServer, tmp_path: Path) -> Callable[..., Path]:
    """Function that downloads ``set.zip`` and returns its path."""

    def fetch(progress: Callable[[str], None] = lambda step: None, **changed: str) -> Path:
        target = tmp_path / "set.zip"
        arguments: dict[str, Any] = {"url": f"{server.url}/set.zip", "md5": MD5} | changed
        download(arguments.pop("url"), target, otherwise=OTHERWISE, progress=progress, **arguments)
        return target

    return fetch


def part_of(tmp_path: Path) -> bytes:
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip.part"]
    return (tmp_path / "set.zip.part").read_bytes()


def test_a_file_comes_whole_and_says_how_far_it_is(
    fetch: Callable[..., Path], server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(downloads, "_BLOCK_BYTES", 100_000)
    monkeypatch.setattr(downloads, "_BETWEEN_REPORTS_S", 0.0)
    reports: list[str] = []
    assert fetch(reports.append).read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]
    assert server.requests == [None]
    assert reports[-2:] == ["download set.zip: 0.4 of 0.4 MB", "check set.zip"]
    assert len(reports) > 4


def test_a_cut_connection_is_taken_up_again(fetch: Callable[..., Path], server: FileServer) -> None:
    server.cut_after = [150_000, 100_000]
    assert fetch().read_bytes() == CONTENT
    assert server.requests == [None, "bytes=150000-", "bytes=250000-"]


def test_what_came_before_a_failure_is_kept_for_the_next_call(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path
) -> None:
    server.cut_after = [70_000] * downloads._MAX_ATTEMPTS
    with pytest.raises(InputError) as caught:
        fetch()
    assert str(caught.value) == (
        f"{server.url}/set.zip: the connection was cut. 0.3 MB of it are in "
        f"{tmp_path}/set.zip.part; run the same command again to go on from there, or {OTHERWISE}"
    )
    assert part_of(tmp_path) == CONTENT[:350_000]
    assert fetch().read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=350000-"


def test_a_connection_that_brings_nothing_is_not_tried_again(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path
) -> None:
    server.cut_after = [100, 0]
    with pytest.raises(InputError, match="the connection was cut"):
        fetch()
    assert len(server.requests) == 2
    assert len(part_of(tmp_path)) == 100


def test_a_server_without_ranges_starts_over(
    fetch: Callable[..., Path], server: FileServer
) -> None:
    server.knows_ranges = False
    server.cut_after = [150_000]
    assert fetch().read_bytes() == CONTENT
    assert server.requests == [None, "bytes=150000-"]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_part_that_is_whole_already_is_taken(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path, knows_ranges: bool
) -> None:
    server.knows_ranges = knows_ranges
    (tmp_path / "set.zip.part").write_bytes(CONTENT)
    assert fetch().read_bytes() == CONTENT


def test_a_wrong_sum_is_said_and_nothing_is_kept(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path
) -> None:
    server.files["/set.zip"] = b"<html>Please log in</html>"
    found = hashlib.md5(b"<html>Please log in</html>").hexdigest()
    with pytest.raises(InputError) as caught:
        fetch()
    assert f"{server.url}/set.zip: what came has md5 {found}, not {MD5}" in str(caught.value)
    assert str(caught.value).endswith(f"nothing of it was kept. Try again, or {OTHERWISE}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (503, "Service Unavailable")])
def test_a_refusal_is_told_as_the_server_words_it(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path, status: int, reason: str
) -> None:
    server.status = status
    with pytest.raises(InputError) as caught:
        fetch()
    assert str(caught.value) == (
        f"{server.url}/set.zip: the server answers {status} {reason}. Try again, or {OTHERWISE}"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("stall_after", "message"), [
    (0, r"nothing came for 0\.5 s\. 0\.0 MB"),
    (160_000, r"nothing came for 0\.5 s\. 0\.2 MB"),
])  # fmt: skip
def test_a_server_that_falls_silent_is_given_up(
    fetch: Callable[..., Path], server: FileServer, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, stall_after: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(downloads, "_SILENCE_S", 0.5)
    monkeypatch.setattr(downloads, "_MAX_ATTEMPTS", 1)
    server.stall_after = stall_after
    with pytest.raises(InputError, match=message):
        fetch()
    assert part_of(tmp_path) == CONTENT[:stall_after]


def test_a_server_that_never_answers_is_given_up(
    fetch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_SILENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/set.zip"
        with pytest.raises(InputError, match=r"the server is silent for 0\.1 s. Try again"):
            fetch(url=url)


def test_nobody_there_is_told(fetch: Callable[..., Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=r"cannot be reached: .*refused"):
        fetch(url=f"http://127.0.0.1:{port}/set.zip")


def test_a_full_disk_is_said_and_what_is_there_is_kept(
    fetch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    room = 150_000

    class FullDisk:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *raised: object) -> None:
            self.file.close()

        def write(self, block: bytes) -> None:
            fits = room - self.file.tell()
            self.file.write(block[:fits])
            if len(block) > fits:
                raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    open_file = Path.open
    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda *given: FullDisk(open_file(*given)))
        with pytest.raises(InputError) as caught:
            fetch()
    assert str(caught.value) == (
        f"{tmp_path}/set.zip.part: cannot be written: No space left on device; what is there is "
        "kept, and the same command goes on from it"
    )
    assert part_of(tmp_path) == CONTENT[:room]
    assert fetch().read_bytes() == CONTENT

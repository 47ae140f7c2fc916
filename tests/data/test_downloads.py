"""Downloads from a server that cuts, stalls, refuses and lies."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretaste.data import movielens
from foretaste.data.movielens import download
from foretaste.errors import InputError
from tests.data.file_server import FileServer, serving
from tests.messages import raises

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


def test_a_file_comes_whole_and_says_how_far_it_is(
    fetch: Callable[..., Path], server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(movielens, "BLOCK_BYTES", 100_000)
    reports: list[str] = []
    assert fetch(reports.append).read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]
    assert server.requests == ["/set.zip"]
    assert reports[-2:] == ["download set.zip: 0.4 MB", "check set.zip"]
    assert len(reports) == 5


def test_a_connection_that_is_cut_leaves_nothing(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path
) -> None:
    server.cut_after = 150_000
    with raises(InputError, "set.zip"):
        fetch()
    assert not list(tmp_path.iterdir())
    server.cut_after = None
    assert fetch().read_bytes() == CONTENT


def test_a_wrong_sum_is_said_and_nothing_is_kept(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path
) -> None:
    server.files["/set.zip"] = b"<html>Please log in</html>"
    found = hashlib.md5(b"<html>Please log in</html>").hexdigest()
    with raises(InputError, f"{server.url}/set.zip", found, MD5, OTHERWISE):
        fetch()
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_told_as_the_server_words_it(
    fetch: Callable[..., Path], server: FileServer, tmp_path: Path
) -> None:
    server.status = 503
    with raises(InputError, f"{server.url}/set.zip", 503, "Service Unavailable", OTHERWISE):
        fetch()
    assert not list(tmp_path.iterdir())


def test_a_server_that_falls_silent_is_given_up(
    fetch: Callable[..., Path], server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(movielens, "SILENCE_S", 0.5)
    server.stall_after = 160_000
    with raises(InputError):
        fetch()
    assert not list(tmp_path.iterdir())


def test_an_absent_server_is_named(fetch: Callable[..., Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with raises(InputError):
        fetch(url=f"http://127.0.0.1:{port}/set.zip")

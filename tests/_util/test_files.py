"""Files are opened only if they are regular files."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foretaste._util.files import atomic_file, file_sha256, open_own, read_document
from tests.messages import raises


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_readers_refuse_other_kinds_of_files_at_once(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "odd"
    make(path)
    for reader in (read_document, file_sha256, lambda path: open_own(path, "a+b")):
        with raises(OSError, errno.EINVAL, path):
            reader(path)


def test_a_link_to_a_file_is_read_and_not_written(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes("Amélie\r\n".encode())
    link.symlink_to("file")
    assert read_document(link) == "Amélie\r\n"
    assert file_sha256(link) == hashlib.sha256(file.read_bytes()).hexdigest()
    with raises(OSError, errno.EINVAL, f"'{link}'"):
        open_own(link, "a+b")
    with open_own(file, "a+b") as opened:
        opened.write(b"more")
    assert file.read_bytes().endswith(b"more")


def test_a_file_is_synced_before_its_rename_and_its_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "file", []

    def record(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", record)
    with atomic_file(path) as temporary:
        temporary.write_text("new")
    assert synced == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]

"""Files and directories that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste._util.atomic import atomic_directory, atomic_file, remove_leftovers


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_writer_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("before")

    def write_half(temporary: Path) -> None:
        temporary.with_name("of the writer's own").write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"), atomic_file(path) as temporary:
        write_half(temporary)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_put_in_its_place_becomes_an_ordinary_one(tmp_path: Path) -> None:
    path, ordinary = tmp_path / "file.txt", tmp_path / "ordinary.txt"
    ordinary.touch()
    with atomic_file(path) as temporary:
        private = temporary.with_name("private")
        private.touch(mode=0o600)
        private.replace(temporary)
    assert path.stat().st_mode == ordinary.stat().st_mode


def test_what_killed_writers_left_is_removed_whatever_they_called_it(tmp_path: Path) -> None:
    path, other = tmp_path / "file.txt", tmp_path / "other.txt"
    with atomic_file(path) as killed, atomic_file(other) as alive:
        killed.with_name("of the writer's own").write_text("half")
        remove_leftovers(path)
        assert list(tmp_path.iterdir()) == [alive.parent]
        killed.parent.mkdir()
        killed.touch()


def test_a_directory_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one"
    with atomic_directory(path) as temporary:
        (temporary / "file.txt").write_text("whole")
        assert not path.exists()
    assert [file.name for file in path.iterdir()] == ["file.txt"]
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileExistsError), atomic_directory(path):
        pytest.fail("it is there")

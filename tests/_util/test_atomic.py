"""Files and directories exist whole or not at all if a writer is killed at any point."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from foretaste._util import files
from foretaste._util.files import atomic_directory, atomic_file, remove_leftovers
from foretaste.errors import RunError

WRITES = """
import ctypes, sys
from pathlib import Path
from foretaste._util.files import atomic_file
with atomic_file(Path(sys.argv[1])) as temporary:
    temporary.with_name("of the writer's own").write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
"""

REPLACES = """
import ctypes, json, os, signal, sys
from pathlib import Path
from foretaste._util import files
path = Path(sys.argv[1])
if sys.argv[2] == "cannot exchange":
    files.exchange = lambda one, other: False
num_calls, dies_at, status, seen = 0, 0, signal.SIGKILL, []
def count(event, args):
    global num_calls
    num_calls += event.startswith(("open", "os.", "ctypes.", "shutil.", "tempfile."))
    if num_calls == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
def write(text):
    with files.atomic_directory(path, replace=True) as directory:
        (directory / "a.txt").write_text(text)
        (directory / "b.txt").write_text(text)
while status == signal.SIGKILL:
    write("old")
    dies_at += 1
    if (writer := os.fork()) == 0:
        sys.addaudithook(count)
        write("new")
        os._exit(0)
    _, status = os.waitpid(writer, 0)
    was_there = path.exists()
    files.remove_leftovers(path)
    names = [file.name for file in path.parent.iterdir()]
    seen.append((was_there, names, [file.read_text() for file in sorted(path.glob("?.txt"))]))
print(json.dumps([status, *zip(*seen)]))
"""


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_writer_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("before")

    def write_half(temporary: Path) -> None:
        temporary.with_name("of the writer's own").write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"), atomic_file(path) as temporary:
        write_half(temporary)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_another_process_wrote_first_is_not_replaced(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.txt"

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    with atomic_file(path, replace=False) as temporary:
        temporary.write_text("first")
    with pytest.raises(FileExistsError), atomic_file(path, replace=False) as temporary:
        temporary.write_text("second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_put_in_its_place_becomes_an_ordinary_one(tmp_path: Path) -> None:
    path, ordinary = tmp_path / "file.txt", tmp_path / "ordinary.txt"
    ordinary.touch()
    with atomic_file(path) as temporary:
        private = temporary.with_name("private")
        private.touch(mode=0o600)
        private.replace(temporary)
    assert path.stat().st_mode == ordinary.stat().st_mode


def test_a_directory_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one"
    path.mkdir(parents=True)  # empty: a place for another
    with atomic_directory(path) as temporary:
        (temporary / "file.txt").write_text("whole")
        assert list(path.iterdir()) == []
    assert [file.name for file in path.iterdir()] == ["file.txt"]
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileExistsError), atomic_directory(path):
        pytest.fail("it is there")


@pytest.mark.parametrize("how", ["can exchange", "cannot exchange"])
def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new(how: str, tmp_path: Path) -> None:
    """Each kill comes before another system call, and nothing left behind disturbs the next
    writer."""
    line = [sys.executable, "-c", REPLACES, str(tmp_path / "out"), how]
    done = subprocess.run(line, capture_output=True, check=True)
    status, was_there, names, texts = json.loads(done.stdout)
    assert {*map(tuple, names)} == {("out",)}
    assert (status, texts[0], texts[-1]) == (0, ["old", "old"], ["new", "new"])
    assert {*map(tuple, texts)} == {("old", "old"), ("new", "new")}
    assert {*was_there} == ({True} if how == "can exchange" else {True, False})


def test_the_next_writer_removes_leftovers_of_dead_processes(tmp_path: Path) -> None:
    path, command = tmp_path / "[1].txt", [sys.executable, "-c", WRITES, str(tmp_path / "[1].txt")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        with atomic_file(path) as temporary:
            temporary.write_text("ours")
        assert len(list(tmp_path.iterdir())) == 2, "a living process lost what it writes"
        process.kill()
    with atomic_file(path) as temporary, atomic_file(path):
        remove_leftovers(path)
        temporary.write_text("ours")
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_other_names_stay(tmp_path: Path) -> None:
    others = [tmp_path / name for name in (".abcd1234.tmp.other", ".abcd1234.tmp.file.txt.txt")]
    for other in others:
        other.mkdir()
    link = tmp_path / ".abcd1234.tmp.file.txt"
    link.symlink_to(others[0])
    remove_leftovers(tmp_path / "file.txt")
    assert sorted(tmp_path.iterdir()) == sorted([*others, link])
    assert list(others[0].iterdir()) == []


def test_without_locks_nothing_is_taken_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    left = tmp_path / ".abcd1234.tmp.file.txt"
    left.mkdir()
    with atomic_file(tmp_path / "file.txt") as temporary:
        temporary.write_text("whole")
    assert left.is_dir()
    assert (tmp_path / "file.txt").read_text() == "whole"


@pytest.mark.parametrize("writer", [atomic_file, atomic_directory])
def test_errors_name_the_given_path(
    writer: Callable[[Path], AbstractContextManager[Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("lists")
    with pytest.raises(FileNotFoundError) as caught, writer(path) as temporary:
        (temporary.parent / "absent" / "part").touch()
    assert str(caught.value) == "[Errno 2] No such file or directory: 'lists/absent/part'"
    with pytest.raises(OSError, match=r"\] no room for 'lists'$"), writer(path) as temporary:
        raise OSError(errno.ENOSPC, f"no room for '{temporary}'")
    with pytest.raises(RunError, match=r"^lists: is odd$"), writer(path) as temporary:
        raise RunError(f"{temporary}: is odd")
    path.touch()
    with pytest.raises(NotADirectoryError, match="'lists/more'"), writer(path / "more"):
        pytest.fail("it cannot be made")


def test_all_is_flushed_before_and_after_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    flushed: list[tuple[str, bool]] = []
    monkeypatch.setattr(files, "flush", lambda what: flushed.append((what.name, path.exists())))
    with atomic_directory(path) as directory:
        (directory / "part").touch()
    assert flushed == [("part", False), ("out", False), (tmp_path.name, True)]


def test_folders_that_are_made_above_it_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(files, "flush", flushed.append)
    with atomic_directory(tmp_path / "a" / "b" / "out"):
        pass
    # A name is on the disk only if its folder is.
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(flushed)


def write(path: Path, *, replace: bool) -> None:
    with atomic_directory(path, replace=replace) as temporary:
        (temporary / "new.txt").touch()


@pytest.mark.parametrize("place", [".", ".."])
def test_the_working_directory_is_not_replaced(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").touch()
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner" if place == ".." else tmp_path)
    with pytest.raises(FileExistsError):
        write(Path(place), replace=True)
    assert {file.name for file in tmp_path.iterdir()} == {"mine.txt", "inner"}


def test_a_link_stays_and_its_directory_is_replaced(tmp_path: Path) -> None:
    directory, link = tmp_path / "directory", tmp_path / "link"
    directory.mkdir()
    (directory / "old.txt").touch()
    link.symlink_to("directory")
    write(link, replace=True)
    assert link.readlink() == Path("directory")
    assert [file.name for file in directory.iterdir()] == ["new.txt"]


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("link")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write(link, replace=True)
    assert [*tmp_path.iterdir()] == [link]

"""A run has one training at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from socket import gethostname

import pytest

from foretaste.errors import RunError
from foretaste.runs import Run, verify
from foretaste.runs.places import LOCK, training_lock
from tests.messages import raises

HOLD = """
import sys, time
from pathlib import Path
from foretaste.runs.places import training_lock
with training_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_error_names_the_training_process(run: Run) -> None:
    with (
        run.in_training(),
        raises(RunError, run.path, os.getpid(), gethostname()),
        run.in_training(),
    ):
        pytest.fail("two trainings at once")


def test_the_holder_is_known_and_it_is_open_again_afterwards(run: Run) -> None:
    for _ in range(2):
        assert run.training_process is None
        with run.in_training():
            assert (run.path / LOCK).is_file()
            assert str(run.training_process).startswith(f"process {os.getpid()} on ")
        assert not (run.path / LOCK).exists()


def test_reading_needs_no_lock(run: Run) -> None:
    with run.in_training():
        assert Run.open(run.path).load_weights()


def test_a_dead_process_locks_nobody_out(run: Run) -> None:
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with raises(RunError, run.path, process.pid, gethostname()), run.in_training():
            pytest.fail("two trainings at once")
        process.kill()
    assert (run.path / LOCK).exists()
    with run.in_training():
        pass


def test_a_lock_that_was_removed_before_locking_does_not_count(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removed the file just before the lock: the next holder makes a new file."""
    flock = fcntl.flock
    removed: list[int] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(descriptor)
            (run.path / LOCK).unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with (
        run.in_training(),
        raises(RunError, run.path, os.getpid(), gethostname()),
        run.in_training(),
    ):
        pytest.fail("two trainings at once")
    assert removed


def test_a_file_system_without_locks_allows_every_process(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with run.in_training():
        pass


def test_a_directory_that_cannot_be_written_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("foretaste.runs.places.open_own", refuse)
        with raises(RunError, run.path / LOCK, errno.EROFS, run.path / LOCK):
            training_lock(run.path).__enter__()


def test_a_lock_file_of_a_dead_process_locks_nothing(run: Run) -> None:
    (run.path / LOCK).write_text("process 1 on here")
    run.log.finish()
    assert run.training_process is None
    assert verify(run.path) == []


def test_asking_for_the_holder_keeps_nobody_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks holds the lock until the trainer's second try."""
    flock, path = fcntl.flock, run.path / LOCK
    path.touch()
    with path.open("rb") as asking:
        flock(asking, fcntl.LOCK_EX)

        def ask_no_more(descriptor: int, operation: int) -> None:
            try:
                flock(descriptor, operation)
            finally:
                flock(asking, fcntl.LOCK_UN)

        monkeypatch.setattr(fcntl, "flock", ask_no_more)
        with run.in_training():
            pass


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_nothing_but_a_file_of_the_run_s_own_is_a_lock(run: Run, tmp_path: Path, kind: str) -> None:
    path, victim = run.path / LOCK, tmp_path / "victim"
    if kind == "link":
        victim.write_text("precious")
    if kind in ("link", "dangling link"):
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    with raises(RunError, path, path), run.in_training():
        pytest.fail("what is there was taken for a lock")
    assert victim.exists() == (kind == "link")
    assert not victim.exists() or victim.read_text() == "precious"
    assert run.training_process is None


def test_a_lock_that_another_file_is_too_is_not_written(run: Run, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.link(victim, run.path / LOCK)
    with run.in_training():
        assert not victim.samefile(run.path / LOCK)
    assert victim.read_text() == "precious"

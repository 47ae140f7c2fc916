"""Directories of runs: unused names, a training's lock, replacements, and lists of runs."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import IO, Any

from foretaste._util.files import (
    SMALL_BYTES,
    atomic_directory,
    is_empty_directory,
    is_name_text,
    open_own,
    open_regular,
    remove_leftovers,
    resolve_links,
)
from foretaste._util.formatting import did_you_mean, memory
from foretaste._util.settings import validate
from foretaste._util.system import try_lock
from foretaste.errors import RunError
from foretaste.evaluation.config import default_metric
from foretaste.runs.config import FORMAT, RunConfig, read_run_config
from foretaste.runs.files import CONFIG, METRICS, writing
from foretaste.runs.log import MetricsLog, summary_of

LOCK = "training.lock"

_MARK = f'"format": "{FORMAT}"'.encode()

# A process that asks for the holder (`lock_holder`) has the lock itself for a moment, so one
# refusal does not mean a training; a busy machine may stop it within that moment.
_NUM_TRIES, _PAUSE_S = 25, 0.01


def resume_command(path: Path) -> str:
    """Return the command that resumes the training of the run at ``path``."""
    return shlex.join(["foretaste", "train", "--resume", str(path)])


def has_tensorflow(path: Path) -> bool:
    """Return True for a directory with checkpoints of TensorFlow and no run."""
    return any(path.glob("*.ckpt*.index")) and not (path / CONFIG).exists()


def check_is_new(path: Path) -> None:
    """Raise RunError if ``path`` is taken, the working directory, or no UTF-8 text."""
    if not is_name_text(path):
        raise RunError(f"{path} cannot be written: its name is not UTF-8 text; name another")
    if has_tensorflow(path):
        raise RunError(
            f"{path} has checkpoints of TensorFlow, which cannot be read here and are kept; name "
            "another directory for the run"
        )
    if path.exists() and not is_empty_directory(path):
        raise RunError(
            f"{path} exists already; choose another directory, or replace a run with --overwrite "
            "(overwrite=True in Python)"
        )
    if path.name in ("", ".."):
        raise RunError(f"{path} cannot become a run: a process works in it; name a directory in it")


@contextmanager
def new_run_directory(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary directory, which atomically becomes ``path`` at the end of the block.

    Raises RunError if ``path`` cannot be written, if it holds anything but a run to ``overwrite``,
    or if another process trains that run.
    """
    path = _writable_place(path, overwrite=overwrite)
    replaces = path.exists() and not is_empty_directory(path)
    try:
        with (
            training_lock(path) if replaces else nullcontext(),
            atomic_directory(path, replace=replaces) as temporary,
        ):
            yield temporary
    except FileExistsError:
        check_is_new(path)
        raise RunError(
            f"{path} cannot be replaced, though it is empty; name a directory in it"
        ) from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def default_run_name(model: str, dataset_name: str, now: datetime) -> str:
    """``model-dataset-time``, the default name of a run."""
    return f"{model}-{dataset_name}-{now:%Y%m%d-%H%M%S}"


def unused_run_path(root: Path, name: str) -> Path:
    """``root/name``; if that exists, ``root/name-2``, ``-3``, ..."""
    path = root / name
    number = 2
    while path.exists():
        path = root / f"{name}-{number}"
        number += 1
    return path


def named_path(path: Path) -> Path:
    """Return ``path``, or the whole path of the working directory, which has no name in ``.``."""
    return path if path.name not in ("", "..") else path.resolve()


def next_to(path: Path) -> Path:
    """Return ``NAME.next``, in which a run is trained that replaces the one at ``path``."""
    path = named_path(path)
    return path.with_name(f"{path.name}.next")


def place_to_train(path: Path, *, overwrite: bool) -> Path:
    """Return the directory to train in for ``path``: ``NAME.next`` to replace a run.

    Otherwise it is the directory to which ``path`` leads. Raises RunError if it holds anything but
    a run to ``overwrite``, if another process trains that run, or if ``NAME.next`` is a run of its
    own.
    """
    place = _writable_place(path, overwrite=overwrite)
    if not place.exists() or is_empty_directory(place):
        return place
    beside = next_to(place)
    # After a kill the replaced run may still be there.
    if _asked_name(beside) not in (None, place.name):
        raise RunError(
            f"{beside} is a run of its own, and a run that replaces {place} is trained there; "
            "rename it, or choose another directory"
        )
    return _writable_place(beside, overwrite=True)


def _asked_name(path: Path) -> str | None:
    """Return the name asked for the run at ``path``; None without a name or without a run."""
    with suppress(RunError):
        asked = read_run_config(path / CONFIG).request["beside"].get("run")
        return asked and Path(asked).name
    return None


def check_room(path: Path, num_bytes: int) -> None:
    """Raise RunError if a new run at ``path`` finds too little room beside the one it replaces."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if num_bytes > (free := shutil.disk_usage(folder).free):
        raise RunError(
            f"{path} takes up to {memory(num_bytes)} beside the run that it replaces, and "
            f"{folder} has {memory(free)} free; make room, or name a run on another disk"
        )


def _writable_place(path: Path, *, overwrite: bool) -> Path:
    """Follow ``path`` if it is a link; raises RunError as `place_to_train`."""
    if path.is_symlink():
        try:
            link, path = path, resolve_links(path)
        except OSError as error:
            raise RunError(
                f"{path} cannot be written: {error.strerror}; name another directory"
            ) from error
        if overwrite and (path / CONFIG).exists():
            raise RunError(f"{link} is a link to {path}; to replace that run, name it")
    remove_leftovers(path)
    is_named = path.name not in ("", "..")  # the working directory is never replaced
    if not (overwrite and is_named) or not path.exists() or is_empty_directory(path):
        check_is_new(path)
        return path
    check_is_run(path)
    with training_lock(path):
        return path


def check_is_run(path: Path) -> None:
    """Raise RunError for anything but a run; other programs write files named config.json too."""
    with suppress(OSError), open_regular(path / CONFIG) as file:
        if _MARK in file.read(SMALL_BYTES):
            return
    raise RunError(
        f"{path} is no run, and nothing else is replaced; choose another directory or remove it"
    )


@contextmanager
def training_lock(run_path: Path) -> Iterator[None]:
    """Lock a run against other trainings inside the block; RunError names the process that has it.

    The file is removed afterwards. On a file system without locks every process enters.
    """
    path = run_path / LOCK
    with writing(path):
        file = _acquire(path)
    try:
        yield
    finally:
        # Remove the file before the lock is released: afterwards it may be the file of the next
        # holder. If the run was replaced, another file is there.
        with suppress(OSError):
            if _is_the_only(file, path):
                path.unlink()
        file.close()


def lock_holder(run_path: Path) -> str | None:
    """Return the process that trains a run, as ``process 123 on host``; None if there is none."""
    try:
        with open_own(run_path / LOCK, "rb") as file:
            return None if try_lock(file.fileno()) else _read_name(file)
    except OSError:
        return None


def _acquire(path: Path) -> IO[bytes]:
    """Return the lock file, open and locked."""
    # The kernel releases the lock when the process dies, so a kill leaves no stale lock.
    while True:
        file = open_own(path, "a+b")
        try:
            for _ in range(_NUM_TRIES):
                if try_lock(file.fileno()):
                    break
                time.sleep(_PAUSE_S)
            else:
                raise RunError(
                    f"{path.parent} is being trained by {_read_name(file)}; wait for it or stop it "
                    "first"
                )
            if _is_the_only(file, path):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {gethostname()}".encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _is_the_only(file: IO[bytes], path: Path) -> bool:
    """Return True if the open file is the one at ``path``, and has no other name."""
    status = os.fstat(file.fileno())
    # The holder before may have removed the file between `open` and the lock: then this lock is on
    # a file that no other process finds. A second name is a hard link to somebody's file.
    with suppress(FileNotFoundError):
        if os.path.samestat(status, path.lstat()):
            if status.st_nlink == 1:
                return True
            path.unlink()
    return False


def _read_name(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(1000).decode(errors="replace") or "another process"


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """Entries of a run's config and log; for an unreadable run only its path and the reason."""

    path: Path

    state: str
    """``finished``, ``not finished``, ``in training (process 123 on host)``, or why the training
    failed or the run cannot be read."""

    is_damaged: bool = False
    """True if the run cannot be read: its files are torn, changed or of another format."""

    model: str | None = None

    dataset: str | None = None
    """Name of the dataset's directory."""

    protocol: str | None = None

    candidates: str | None = None
    """The items against which held-out items were ranked."""

    metric: str | None = None
    """The metric that chooses the epoch; for a model fitted in one pass the default one."""

    validation: float | None = None
    """The metric's best value in training, on the held-out part that chooses the epoch."""

    test: float | None = None
    """The metric's value on the test part."""

    train_s: float | None = None
    """Seconds of all epochs, without evaluation."""

    created: str | None = None
    """Starting time of the run, ISO 8601 in UTC."""


def list_runs(folder: Path | str) -> list[ListedRun]:
    """Return a folder's runs, oldest first and unreadable last, or the run in the folder itself.

    Raises RunError if there is no such folder.
    """
    folder = validate("folder", folder, Path)
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such directory{did_you_mean(folder)}")
    found = [folder] if _is_run(folder) else sorted(filter(_is_run, folder.iterdir()))
    # A run that a link leads to too is listed once, by its own name.
    paths = {path.resolve(): path for path in sorted(found, key=Path.is_symlink, reverse=True)}
    listed = [_describe_run(path) for path in paths.values()]
    return sorted(listed, key=lambda run: (run.is_damaged, run.created or ""))


def _is_run(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in (CONFIG, METRICS))


def _describe_run(path: Path) -> ListedRun:
    try:
        config = read_run_config(path / CONFIG)
        events = MetricsLog(path / METRICS).read()
        is_finished = summary_of(events) is not None
        found = _results(config, *events[-2:]) if is_finished else {}
    except RunError as error:
        return ListedRun(path=path, state=f"cannot be read: {error}", is_damaged=True)
    state = "finished"
    if not is_finished:
        holder = lock_holder(path)
        failed = events[-1]["event"] == "failed"
        ended = f"failed: {events[-1]['stopped_because']}" if failed else "not finished"
        state = f"in training ({holder})" if holder else ended
    return ListedRun(
        path=path,
        state=state,
        model=config.model,
        dataset=config.dataset.name,
        protocol=config.dataset.protocol,
        candidates=str(config.resolved.get("candidates", "full")),
        created=config.created,
        **found,
    )


def _results(config: RunConfig, *events: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a finished training: its log ends with test part and summary."""
    summary, evaluation = events[-1], events[0].get("evaluation")
    metric = summary.get("select_by") or default_metric(config.dataset.protocol)
    test = None
    if isinstance(evaluation, Mapping) and evaluation.get("split") == "test":
        test = evaluation["metrics"].get(metric)
    return {
        "metric": metric,
        "validation": summary.get("best_value"),
        "test": None if test is None else float(test["value"]),
        "train_s": summary.get("train_s"),
    }

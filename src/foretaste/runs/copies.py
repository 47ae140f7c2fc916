"""What a run's log says, kept outside the run too: a copy of it, and two summaries."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from foretaste._util.atomic import atomic_file
from foretaste._util.regular import read_document
from foretaste.errors import SettingError
from foretaste.runs.files import writing
from foretaste.runs.log_lines import (
    event_of,
    first_line,
    is_first_line,
    line_after,
    previous_of,
)

if TYPE_CHECKING:
    from foretaste.runs.run import Run

_ARGS, _METRICS = "args.json", "metrics.json"
_KINDS = ("epoch", "evaluation", "summary")
_CHANGES_RESULTS = ("evaluation", "summary")
_WHY = "nothing is written over without --overwrite (overwrite=True in Python)"


def check_log_path(path: Path, lines: Collection[str] = (), *, overwrite: bool = False) -> None:
    """Raise SettingError where no log can be written to ``path``, or another one would be lost.

    ``lines`` are those of the log so far: a file with any other belongs to another run, even one
    that this was copied from. Such a log may be replaced with ``overwrite``; what is no log never.
    What is no ordinary file, such as a pipe, may be written to, and so may an empty one.
    """
    if path.is_dir():
        raise SettingError(f"log_path is {path}, which is a directory; name a file")
    _check_can_be_made(path.parent, f"log_path is {path}")
    if not path.is_file() or not path.stat().st_size:
        return
    known = set(lines)
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
        is_own = first in known and all(line in known for line in file if line.endswith("\n"))
    if not is_own and not (overwrite and is_first_line(first)):
        why = "it is no log, and nothing else is replaced" if overwrite else _WHY
        raise SettingError(
            f"log_path is {path}, which is there already; {why}: name another file or remove it"
        )


def check_results_dir(directory: Path, run: Run | None = None, *, overwrite: bool = False) -> None:
    """Raise SettingError where ``directory`` cannot be made or holds results of another training.

    ``run`` is that of a training that goes on. Results may be replaced with ``overwrite``.
    """
    _check_can_be_made(directory, f"results_dir is {directory}")
    found = results_in(directory)
    if found and not overwrite and not (run and _are_of(run, directory)):
        raise SettingError(
            f"results_dir is {directory}, which has {' and '.join(found)} already; "
            f"{_WHY}: name another directory or remove them"
        )


def results_in(directory: Path) -> list[str]:
    """The names of the results that are there."""
    return [name for name in (_ARGS, _METRICS) if (directory / name).is_file()]


def _check_can_be_made(directory: Path, said: str) -> None:
    """SettingError, which begins with what was ``said``, where a file stands in the way."""
    found = next(part for part in (directory, *directory.absolute().parents) if part.exists())
    if not found.is_dir():
        raise SettingError(f"{said}, but {found} is not a directory")


def _are_of(run: Run, directory: Path) -> bool:
    """Whether every event is in the run's log, and none only in that of a run it was copied from;
    before any, whether the settings name the run."""
    events = run.log.read_sound()
    try:
        document = json.loads(read_document(directory / _METRICS))
        found = [{"event": kind, **event} for kind in _KINDS for event in document[kind]]
        if found:
            return all(event in events for event in found)
        named = json.loads(read_document(directory / _ARGS))["run"]
        return Path(named).resolve() == run.path.resolve()
    except (OSError, ValueError, LookupError, TypeError):
        return False


def write_log(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Make ``path`` a log of one evaluation, as it is logged; RunError where that fails."""
    first = first_line()
    line = line_after(previous_of(first), "evaluation", evaluation=evaluation)
    with closing(LogCopy(path)) as log:
        log.begin([first, line])


class LogCopy:
    """The log itself, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: TextIO | None = None

    def begin(self, lines: list[str]) -> None:
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and not self.path.is_file():
                # The reader of a pipe that is closed goes away, and opening it again would wait
                # for another.
                self._open = self._open or self.path.open("w", encoding="utf-8", newline="\n")
                self._write_open("".join(lines))
            elif self.path.is_symlink():
                self._write(self.path, lines)
            else:
                with atomic_file(self.path) as temporary:
                    self._write(temporary, lines)

    @staticmethod
    def _write(path: Path, lines: list[str]) -> None:
        path.write_text("".join(lines), encoding="utf-8", newline="\n")

    def _write_open(self, text: str) -> None:
        assert self._open is not None
        self._open.write(text)
        self._open.flush()

    def add(self, line: str) -> None:
        with writing(self.path):
            if self._open is not None:
                self._write_open(line)
                return
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(line)

    def close(self) -> None:
        if self._open is not None:
            with writing(self.path):
                self._open.close()
            self._open = None


class Results:
    """``args.json``, the settings, and ``metrics.json``, the events so far by their kind."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self.settings = settings
        self._events: list[dict[str, Any]] = []

    def begin(self, lines: list[str]) -> None:
        self._events = [event_of(line) for line in lines]
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(_ARGS, self.settings)
            self._write_metrics()

    def add(self, line: str) -> None:
        event = event_of(line)
        self._events.append(event)
        if event["event"] in _CHANGES_RESULTS:
            with writing(self.directory):
                self._write_metrics()

    def close(self) -> None:
        """Everything is written already."""

    def _write_metrics(self) -> None:
        by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
        units: Mapping[str, str] = {}
        for event in self._events:
            rest = {name: value for name, value in event.items() if name != "event"}
            if event["event"] == "schema":
                units = event["units"]
            elif event["event"] in by_kind:
                by_kind[event["event"]].append(rest)
        self._write(_METRICS, {"units": units, **by_kind})

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        with atomic_file(self.directory / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

"""What a run's log says, kept outside the run too: a copy of it, and two summaries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foretaste.atomic import atomic_file
from foretaste.errors import RunError
from foretaste.runs.metrics_log import MetricsLog, as_line

_CHANGES_RESULTS = ("evaluation", "summary")


def write_log(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Make ``path`` a log of one evaluation, as it is logged; RunError where that fails."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        log = MetricsLog(path)
        log.start()
        log.append("evaluation", evaluation=evaluation)


class LogCopy:
    """The log itself, line by line; an earlier file there is replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, events: list[dict[str, Any]]) -> None:
        with _writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(map(as_line, events)), encoding="utf-8")

    def add(self, event: dict[str, Any]) -> None:
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(as_line(event))

    def close(self) -> None:
        """Every line is written already."""


class Results:
    """``args.json``, the settings, and ``metrics.json``, the events so far by their kind."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self.settings = settings
        self._events: list[dict[str, Any]] = []

    def begin(self, events: list[dict[str, Any]]) -> None:
        self._events = list(events)
        with _writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write("args.json", self.settings)
            self._write_metrics()

    def add(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        if event["event"] in _CHANGES_RESULTS:
            with _writing(self.directory):
                self._write_metrics()

    def close(self) -> None:
        """Everything is written already."""

    def _write_metrics(self) -> None:
        by_kind: dict[str, list[dict[str, Any]]] = {"epoch": [], "evaluation": [], "summary": []}
        units: Mapping[str, str] = {}
        for event in self._events:
            rest = {name: value for name, value in event.items() if name != "event"}
            if event["event"] == "schema":
                units = event["units"]
            elif event["event"] in by_kind:
                by_kind[event["event"]].append(rest)
        self._write("metrics.json", {"units": units, **by_kind})

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        with atomic_file(self.directory / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error

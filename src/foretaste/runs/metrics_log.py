"""``metrics.jsonl``: one JSON object per event of a run, appended as it happens."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from foretaste._util.atomic import atomic_file
from foretaste._util.regular import open_own, open_regular
from foretaste.errors import RunError
from foretaste.runs.files import reading, writing
from foretaste.runs.log_lines import (
    checked_line,
    first_line,
    line_after,
    previous_of,
)

_MAX_LINE = 1 << 20
"""Bytes; lines have a few KiB."""


class Follower(Protocol):
    """Keeps what a log says somewhere else too; lines are as the log has them."""

    def begin(self, lines: list[str]) -> None:
        """These are the lines that the log goes on from."""
        ...

    def add(self, line: str) -> None:
        """One more line."""
        ...

    def close(self) -> None:
        """No more will be told."""
        ...


class MetricsLog:
    """The events of one run, in the order they happened; the first declares names and units."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._followers: tuple[Follower, ...] = ()

    @contextmanager
    def followed_by(self, *followers: Follower) -> Iterator[None]:
        """Within, ``followers`` are told of what the log is cut to, which it must be, and then of
        what is written."""
        self._followers = followers
        try:
            yield
        finally:
            self._followers = ()
            for follower in followers:
                follower.close()

    def declare(self) -> None:
        """Make the log with its first line, which says what the others may hold."""
        with writing(self.path), open_own(self.path, "xb") as file:
            file.write(first_line().encode())

    def append(self, event: str, **values: Any) -> None:
        """Add one event with the present time; numbers that are not finite become null.

        Every name must be declared in ``UNITS``. What an interrupted writer left of a last line
        is dropped first.
        """
        with writing(self.path), open_own(self.path, "r+b") as file:
            end, previous = _end(file)
            line = line_after(previous, event, **values)
            file.truncate(end)
            file.seek(end)
            file.write(line.encode())
        self._tell(line)

    def flush(self) -> int:
        """The length in bytes, once everything written so far is on the disk."""
        with writing(self.path), open_own(self.path, "r+b") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def lines(self) -> list[str]:
        """The lines before the first that is none, such as a power failure leaves."""
        return [line for line, _ in self._sound()]

    def lines_until(self, num_bytes: int) -> list[str]:
        """The lines that it had when it was so long; RunError where it never was."""
        lines = self.lines()
        ends = list(accumulate(len(line.encode()) for line in lines))
        if num_bytes not in ends:
            raise RunError(
                f"{self.path} is torn or was changed: it has no line that ends after "
                f"{num_bytes} bytes, where the saved training state belongs"
            )
        return lines[: ends.index(num_bytes) + 1]

    def cut(self, lines: list[str], event: str | None = None, **values: Any) -> None:
        """Forget all but these first lines and add an event, if one is given, at one stroke."""
        # Before the log: killed in between, they have nothing that it has not.
        for follower in self._followers:
            follower.begin(lines)
        added = [line_after(previous_of(lines[-1]), event, **values)] if event else []
        with writing(self.path), atomic_file(self.path) as temporary:
            temporary.write_bytes("".join([*lines, *added]).encode())
        self._tell(*added)

    def read(self) -> list[dict[str, Any]]:
        """Every event, the schema first; a torn last line is left out.

        Raises RunError naming the line that was changed or does not follow the one before it.
        """
        return [event for _, event in self._checked()]

    def last_events(self, count: int) -> list[dict[str, Any]]:
        """The last events, ``count`` at most and the schema never, without reading all of the log.

        Raises RunError where one was changed or does not follow the one before it.
        """
        with reading(self.path), open_regular(self.path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * _MAX_LINE))
            *lines, _ = file.read().split(b"\n")
        try:
            return [
                checked_line(line + b"\n", previous_of(before))[1]
                for before, line in pairwise(lines[-count - 1 :])
            ]
        except (LookupError, ValueError, TypeError) as error:
            raise RunError(f"{self.path}: one of its last lines {error}") from error

    def read_sound(self) -> list[dict[str, Any]]:
        """The events before the first line that is none."""
        return [event for _, event in self._sound()]

    @property
    def is_finished(self) -> bool:
        """Whether it tells of a training that came to its end."""
        return any(event["event"] == "summary" for event in self.read_sound())

    def has_torn_line(self) -> bool:
        """Whether something that is no whole line follows the last one."""
        num_bytes = sum(len(line.encode()) for line in self.lines())
        return num_bytes < self.path.stat().st_size

    def _tell(self, *lines: str) -> None:
        for follower in self._followers:
            for line in lines:
                follower.add(line)

    def _sound(self) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        with suppress(RunError):
            found.extend(self._checked())  # keeps what came before an error
        return found

    def _checked(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every whole line and its event."""
        previous = ""
        with reading(self.path), open_regular(self.path) as file:
            for number in count(1):
                content = file.readline(_MAX_LINE)
                try:
                    if not content.endswith(b"\n"):
                        _check_is_torn(content, previous)
                        return
                    line, event = checked_line(content, previous)
                except ValueError as error:
                    raise RunError(f"{self.path}, line {number} {error}") from error
                previous = previous_of(line)
                yield line, event


def _end(file: IO[bytes]) -> tuple[int, str]:
    """Where the last whole line ends, and what its digest begins with."""
    size = file.seek(0, os.SEEK_END)
    begin = file.seek(max(0, size - 2 * _MAX_LINE))
    *lines, _ = file.read().split(b"\n")
    try:
        previous = previous_of(lines[-1])
    except (LookupError, ValueError, TypeError):
        raise OSError(errno.EINVAL, "its last line is none of a log") from None
    return begin + sum(len(line) + 1 for line in lines), previous


def _check_is_torn(rest: bytes, previous: str) -> None:
    """ValueError where what follows the last whole line is not what a killed writer leaves."""
    if len(rest) == _MAX_LINE:
        raise ValueError(f"is longer than {_MAX_LINE >> 20} MiB")
    try:
        checked_line(rest[:-1] + b"\n", previous)
    except ValueError:
        return
    raise ValueError("is torn or was changed: it does not end with a line feed")

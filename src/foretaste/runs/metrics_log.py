"""``metrics.jsonl``: one JSON object per event of a run, appended as it happens.

The last key of a line is the sha256 of all text before it, and the one before names the digest of
the line before. So no line can be changed, taken out or moved without notice.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from foretaste._util.atomic import atomic_file
from foretaste._util.files import open_own, open_regular
from foretaste._util.signed_json import SHA256, check_signed, signed_text
from foretaste.errors import RunError
from foretaste.runs.paths import reading, writing

UNITS = {
    "event": "kind of event",
    "time": "ISO 8601, UTC",
    "epoch": "epochs, counted from 1",
    "step": "optimizer steps since the start",
    "num_epochs": "epochs",
    "num_warm_up_epochs": "epochs left out of minima, means and samples_per_s",
    "num_steps": "optimizer steps",
    "num_samples": "samples",
    "num_parameters": "parameters",
    "num_users": "users",
    "num_items": "items",
    "num_interactions": "interactions",
    "loss": "mean over samples (neumf, gmf, mlp) or users (vae, dae, recvae), nats; or over "
    "interactions (ials)",
    "evaluation": "protocol, candidates, counts and metrics of one evaluation",
    "beta": "weight of the KL term, 0 to 1",
    "kl_weight": "weight of the KL term for each item of a history (vae)",
    "learning_rate": "of the epoch's last update (cosine)",
    "unobserved_weight": "weight of the squared score of every pair (ials)",
    "regularization": "weight of the squared vectors (ials)",
    "loss_scale": "factor on the loss (fp16)",
    "num_skipped_steps": "optimizer steps left out since the start, gradients not finite (fp16)",
    "metrics": "by name@k: value with its 95 % interval (low, high), 0 to 1",
    "select_by": "name of the metric that chooses the epoch",
    "best_epoch": "epochs, counted from 1",
    "best_value": "of select_by, 0 to 1",
    "prior_weight": "of the prior of new users, chosen on the validation part (neumf, gmf, mlp)",
    "target_epoch": "first epoch that reached the target, counted from 1",
    "target_s": "seconds from the start to the evaluation that reached it, compiling included",
    "elapsed_s": "seconds",
    "train_s": "seconds",
    "compile_s": "seconds, before the first epoch",
    "samples_per_s": "samples per second",
    "started_from": "runs whose weights it began with, and users and items found there",
    "versions": "of what decides the numbers",
    "hardware": "that decides the numbers: name of the GPU, or number of CPU threads",
    "stopped_because": "why training ended",
    "min_epoch_s": "seconds",
    "avg_epoch_s": "seconds",
    "min_evaluation_s": "seconds, of an epoch's evaluation",
    "avg_evaluation_s": "seconds, of an epoch's evaluation",
    "evaluated_users_per_s": "users per second",
    "evaluated_samples_per_s": "(user, candidate) pairs per second",
    "selection_split": "held-out part that chose the epoch",
    "memory_mib": "MiB",
    "best_weights": "epoch and sha256 of the weights that best.safetensors has from now on",
    "previous": "first digits of the sha256 of the line before",
    "sha256": "of this line's text up to here",
}
"""Every name an event may carry at its top level, with its unit or meaning."""

PREVIOUS = "previous"
"""The key before the last: what the digest of the line before begins with, empty in the first."""

_NUM_DIGITS = 16

_MAX_LINE = 16 << 20
"""Bytes; lines have a few KiB, an evaluation of thousands of metrics has a few MiB."""


def first_line() -> str:
    """The line that declares names and units."""
    schema = {"event": "schema", "not finite": "null", "units": UNITS}
    return signed_text({**schema, PREVIOUS: ""})


def is_first_line(line: str) -> bool:
    """True for the first line of a log of any version."""
    with suppress(ValueError):
        values = json.loads(line)
        return isinstance(values, dict) and values.get("event") == "schema"
    return False


def line_after(previous: str, event: str, **values: Any) -> str:
    """An event of the present time, as a log has it after the line that ``previous_of`` names."""
    undeclared = values.keys() - UNITS.keys()
    assert not undeclared, f"declare in UNITS first: {sorted(undeclared)}"
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = signed_text(_finite({"event": event, "time": time, **values, PREVIOUS: previous}))
    if len(line.encode()) > _MAX_LINE:
        raise RunError(
            f"the event {event!r} is too long for a log: it has {len(line.encode()):,} bytes, and "
            f"a line has {_MAX_LINE >> 20} MiB at most; ask for fewer metrics at a time"
        )
    return line


def previous_of(line: str | bytes) -> str:
    """The name of a line in the one after it."""
    return str(json.loads(line)[SHA256])[:_NUM_DIGITS]


def event_of(line: str) -> dict[str, Any]:
    """The event of a line, without what signs it."""
    return _unsigned(json.loads(line))


def _unsigned(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (PREVIOUS, SHA256)}


def checked_line(content: bytes, previous: str) -> tuple[str, dict[str, Any]]:
    """A line and its event; ValueError says why it is none after the one named ``previous``."""
    try:
        line = content.decode()
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"is not a JSON object: {values!s:.80}")
    try:
        check_signed(line)
    except ValueError as error:
        raise ValueError(f"is torn or was changed: {error}") from error
    if values.get(PREVIOUS) != previous:
        raise ValueError("does not follow the line before it: lines were taken out or moved")
    return line, _unsigned(values)


def _finite(value: Any) -> Any:
    """The same JSON value with null for every number that JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


class Follower(Protocol):
    """Callback that keeps the lines of a log somewhere else too."""

    def begin(self, lines: list[str]) -> None:
        """These are the lines that the log goes on from."""
        ...

    def add(self, line: str) -> None:
        """One more line."""
        ...

    def close(self) -> None:
        """No line follows."""
        ...


class MetricsLog:
    """The events of one run, in the order they happened; the first declares names and units."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._followers: tuple[Follower, ...] = ()

    @contextmanager
    def followed_by(self, *followers: Follower) -> Iterator[None]:
        """Within, ``followers`` get the lines that the log is cut to, which it must be, and then
        every line that is written."""
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
            end, last = _last_lines(file, 1)
            try:
                previous = previous_of(last[-1])
            except (LookupError, ValueError, TypeError):
                raise OSError(errno.EINVAL, "its last line is none of a log") from None
            line = line_after(previous, event, **values)
            file.truncate(end)
            file.seek(end)
            file.write(line.encode())
        self._forward(line)

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
        self._forward(*added)

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
            _, lines = _last_lines(file, count + 1)
        try:
            return [checked_line(line, previous_of(before))[1] for before, line in pairwise(lines)]
        except (LookupError, ValueError, TypeError) as error:
            raise RunError(f"{self.path}: one of its last lines {error}") from error

    def read_sound(self) -> list[dict[str, Any]]:
        """The events before the first line that is none."""
        return [event for _, event in self._sound()]

    @property
    def is_finished(self) -> bool:
        """True where a training came to its end; RunError where it seems so by a changed log."""
        if any(event["event"] == "summary" for event in self.read_sound()):
            return True
        with reading(self.path), open_regular(self.path) as file:
            _, last = _last_lines(file, 1)
        # A training that is taken for unfinished may be begun anew: nothing is left of it then.
        if last and b'"event": "summary"' in last[-1]:
            self.read()
        return False

    def has_torn_line(self) -> bool:
        """True where something that is no whole line follows the last one."""
        num_bytes = sum(len(line.encode()) for line in self.lines())
        return num_bytes < self.path.stat().st_size

    def _forward(self, *lines: str) -> None:
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
                    if len(content) == _MAX_LINE and not content.endswith(b"\n"):
                        raise ValueError(f"is longer than {_MAX_LINE >> 20} MiB")
                    if not content.endswith(b"\n"):
                        try:
                            checked_line(content[:-1] + b"\n", previous)
                        except ValueError:
                            return  # a killed writer leaves part of a line
                        raise ValueError("is torn or was changed: it does not end with a line feed")
                    line, event = checked_line(content, previous)
                except ValueError as error:
                    raise RunError(f"{self.path}, line {number} {error}") from error
                previous = previous_of(line)
                yield line, event


def _last_lines(file: IO[bytes], num_lines: int) -> tuple[int, list[bytes]]:
    """The end of the last whole line, and the last lines, ``num_lines`` at most."""
    size, length = file.seek(0, os.SEEK_END), 1 << 16
    while True:
        begin = file.seek(max(0, size - length))
        *lines, rest = file.read().split(b"\n")
        if begin == 0 or len(lines) > num_lines or length > (num_lines + 1) * _MAX_LINE:
            return size - len(rest), [line + b"\n" for line in lines[-num_lines:]]
        length *= 2

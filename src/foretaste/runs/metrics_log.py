"""``metrics.jsonl``: one JSON object per event of a run, appended as it happens."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from foretaste.errors import RunError

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
    "loss": "mean over samples (neumf, gmf, mlp) or users (vae, dae), nats",
    "evaluation": "protocol, candidates, counts and metrics of one evaluation",
    "beta": "weight of the KL term, 0 to 1",
    "loss_scale": "factor on the loss (fp16)",
    "num_skipped_steps": "optimizer steps left out since the start, gradients not finite (fp16)",
    "metrics": "by name@k: value with its 95 % interval (low, high), 0 to 1",
    "select_by": "name of the metric that chooses the epoch",
    "best_epoch": "epochs, counted from 1",
    "best_value": "of select_by, 0 to 1",
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
}
"""Every name an event may carry at its top level, with its unit or meaning."""


class Follower(Protocol):
    """Keeps what a log says somewhere else too."""

    def begin(self, events: list[dict[str, Any]]) -> None:
        """These are the events that the log goes on from."""
        ...

    def add(self, event: dict[str, Any]) -> None:
        """One more event."""
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

    def declare(self, units: Mapping[str, str] = UNITS) -> None:
        """Write the first line, which says what the others may hold."""
        self._write({"event": "schema", "not finite": "null", "units": dict(units)})

    def append(self, event: str, **values: Any) -> None:
        """Add one event with the present time; numbers that are not finite become null.

        Every name must be declared in ``UNITS``. What an interrupted writer left of a last line
        is dropped first.
        """
        undeclared = values.keys() - UNITS.keys()
        assert not undeclared, f"declare in UNITS first: {sorted(undeclared)}"
        self._drop_torn_line()
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write({"event": event, "time": time, **values})

    def flush(self) -> int:
        """The length in bytes, once everything written so far is on the disk."""
        try:
            with self.path.open("r+b") as file:
                os.fsync(file.fileno())
                return os.fstat(file.fileno()).st_size
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error}") from error

    def check_was(self, num_bytes: int) -> None:
        """RunError where no line ends after so many bytes: the log never was so long."""
        self._when_it_was(num_bytes)

    def cut(self, num_bytes: int) -> None:
        """Forget what was written after the log was so long; RunError where it never was."""
        kept = list(self._events(self._when_it_was(num_bytes)))
        # Before the log: killed in between, they have nothing that it has not.
        for follower in self._followers:
            follower.begin(kept)
        os.truncate(self.path, num_bytes)

    def clear(self) -> None:
        """Forget every event; the first line stays."""
        self.cut(self.path.read_bytes().find(b"\n") + 1)

    def has(self, event: str) -> bool:
        """Whether such an event was written, whole; lines that are torn do not count."""
        return any(
            f'"event": "{event}"'.encode() in line and line.endswith(b"}")
            for line in self.path.read_bytes().split(b"\n")[:-1]
        )

    def read(self) -> list[dict[str, Any]]:
        """Every event, the schema first; a torn last line is left out.

        Raises RunError naming the line that is not a JSON object.
        """
        return list(self._events(self.path.read_bytes()))

    def read_sound(self) -> list[dict[str, Any]]:
        """The events before the first line that is none, such as a power failure leaves."""

        def sound() -> Iterator[dict[str, Any]]:
            with suppress(RunError):
                yield from self._events(self.path.read_bytes())

        return list(sound())

    def _when_it_was(self, num_bytes: int) -> bytes:
        text = self.path.read_bytes()[:num_bytes]
        if len(text) < num_bytes or not text.endswith(b"\n"):
            raise RunError(
                f"{self.path} is torn or was changed: it has no line that ends after "
                f"{num_bytes} bytes, where the saved training state belongs"
            )
        return text

    def _events(self, text: bytes) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(text.split(b"\n")[:-1], start=1):
            try:
                event = json.loads(line)
            except ValueError as error:
                raise RunError(f"{self.path}, line {number} is not JSON: {error}") from error
            if not isinstance(event, dict):
                raise RunError(f"{self.path}, line {number} is not a JSON object: {event!s:.80}")
            yield event

    def _write(self, event: dict[str, Any]) -> None:
        event = _finite(event)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(as_line(event))
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error}") from error
        for follower in self._followers:
            follower.add(event)

    def _drop_torn_line(self) -> None:
        with self.path.open("r+b") as file:
            text = file.read()
            if not text.endswith(b"\n"):
                file.truncate(text.rfind(b"\n") + 1)


def as_line(event: Mapping[str, Any]) -> str:
    """An event as the log has it."""
    return json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same JSON value with null for every number that JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value

"""``metrics.jsonl``: a JSON object per event, appended as it happens; the history of epochs."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.files import atomic_file, open_own, open_regular, read_document
from foretaste._util.signed_json import check_signed, signed_text
from foretaste.errors import RunError
from foretaste.runs.files import CONFIG, reading, writing

if TYPE_CHECKING:
    from foretaste.evaluation.result import Evaluation

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
    "popularity": "its value of the metric that chooses, and the model's gain over it on the same "
    "users, with a 95 % interval",
    "fold_in": "settings of the fold-in, chosen on the validation part: prior_weight (neumf, gmf, "
    "mlp)",
    "target_epoch": "first epoch that reached the target, counted from 1",
    "target_s": "seconds from the start to the evaluation that reached it, compiling included",
    "elapsed_s": "seconds",
    "train_s": "seconds",
    "compile_s": "seconds, before the first epoch",
    "search_s": "seconds of the fits that chose settings, before the training",
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
    "log_sha256": "of all lines before the summary",
    "config_sha256": "the last entry of config.json",
    "sha256": "of the summary's line before this value",
}
"""All names at the top level of an event, with unit or meaning."""


def first_line() -> str:
    """Return the line that declares names and units."""
    return _as_line({"event": "schema", "not finite": "null", "units": UNITS})


def is_first_line(line: str) -> bool:
    """Return True for the first line of a log."""
    with suppress(ValueError):
        values = json.loads(line)
        return isinstance(values, dict) and values.get("event") == "schema"
    return False


def line_of(event: str, **values: Any) -> str:
    """Return the line of an event with the present time; non-finite numbers become null."""
    undeclared = values.keys() - UNITS.keys()
    assert not undeclared, f"declare in UNITS first: {sorted(undeclared)}"
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return _as_line(_finite({"event": event, "time": time, **values}))


def _as_line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Return a JSON value with null in place of every number that JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


class MetricsLog:
    """The events of one run, in order; the first declares names and units.

    A killed writer may leave a last line without a line feed. It is not read, and the next writer
    removes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def declare(self) -> None:
        """Create the log with its first line, which declares the names of the others."""
        with writing(self.path), open_own(self.path, "xb") as file:
            file.write(first_line().encode())

    def append(self, event: str, **values: Any) -> None:
        """Add one event with the present time; every name must be declared in ``UNITS``."""
        line = line_of(event, **values)
        with writing(self.path), open_own(self.path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            # Cut a torn line that a killed writer left, or this line would be joined to it.
            if file.read() != b"\n":
                file.seek(0)
                end = file.read().rfind(b"\n") + 1
                file.truncate(end)
                file.seek(end)
            file.write(line.encode())

    def finish(self, **values: Any) -> None:
        """Add the summary, the last event, and sync the log to the disk.

        The summary holds the digests of all lines before it, of the run's config and of itself.
        """
        lines = self.lines()
        digests = {"log_sha256": _sha256(lines), "config_sha256": self._config_sha256()}
        summary = json.loads(line_of("summary", **values, **digests))
        with writing(self.path), atomic_file(self.path) as temporary:
            temporary.write_bytes("".join([*lines, signed_text(summary)]).encode())

    def _config_sha256(self) -> str:
        path = self.path.with_name(CONFIG)
        try:
            with reading(path):
                return check_signed(read_document(path))
        except ValueError as error:
            raise RunError(f"{path} is torn or was changed: {error}") from error

    def _check_summary(self, lines: Sequence[str], summary: Mapping[str, Any]) -> None:
        """Raise RunError if the last of the lines does not sign those before it, or another run."""
        try:
            check_signed(lines[-1])
            if summary.get("log_sha256") != _sha256(lines[:-1]):
                raise ValueError("the lines before the summary do not match its log_sha256")
        except ValueError as error:
            raise RunError(f"{self.path} is torn or was changed: {error}") from error
        if summary.get("config_sha256") != self._config_sha256():
            raise RunError(f"{self.path} belongs to another run: {CONFIG} has another sha256")

    def flush(self) -> int:
        """Sync the log to the disk; returns its length in bytes."""
        # A saved state refers to this length, so the lines are on the disk before the state is.
        with writing(self.path), open_own(self.path, "r+b") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def lines(self) -> list[str]:
        """Return all lines, the first with names and units; RunError if a line is no event."""
        return [line for line, _ in self._read()]

    def lines_until(self, num_bytes: int) -> list[str]:
        """Return the lines in the first ``num_bytes`` bytes; RunError if no line ends there."""
        lines: list[str] = []
        length, found = 0, self._read()
        while length < num_bytes and (line := next(found, None)):
            lines.append(line[0])
            length += len(line[0].encode())
        if length != num_bytes:
            raise RunError(
                f"{self.path} lost lines: no line ends after {num_bytes} bytes, where the training "
                "state was saved"
            )
        return lines

    def cut(self, lines: list[str], event: str | None = None, **values: Any) -> None:
        """Replace the log by these first lines and the event, if one is given, atomically."""
        lines = [*lines, *([line_of(event, **values)] if event else [])]
        with writing(self.path), atomic_file(self.path) as temporary:
            temporary.write_bytes("".join(lines).encode())

    def read(self) -> list[dict[str, Any]]:
        """Return all events, the declaration first.

        RunError for a line that is no event, and for a summary that does not sign the lines before
        it and the run's config.
        """
        found = [*self._read()]
        kinds = [event["event"] for _, event in found]
        if "summary" in kinds[:-1]:
            number = kinds.index("summary") + 1
            raise RunError(f"{self.path} was changed: lines follow its summary, line {number}")
        if summary := summary_of([event for _, event in found]):
            self._check_summary([line for line, _ in found], summary)
        return [event for _, event in found]

    @property
    def summary(self) -> dict[str, Any] | None:
        """The last event of a finished training; None before its end."""
        return summary_of(self.read())

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with reading(self.path), open_regular(self.path) as file:
            for number in count(1):
                content = file.readline()
                try:
                    if not content.endswith(b"\n"):
                        if number == 1:
                            raise ValueError("it does not declare names and units")
                        return
                    line = content.decode()
                    event = json.loads(line)
                    if not isinstance(event, dict) or "event" not in event:
                        raise ValueError(f"it is no event: {line.strip():.80}")
                    if (number == 1) != (event["event"] == "schema"):
                        raise ValueError("the first line, and no other, declares names and units")
                except (ValueError, RecursionError) as error:
                    raise RunError(f"{self.path}, line {number} is damaged: {error}") from error
                yield line, event


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def history_of(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a training's epochs in order: the numbers of each, with its evaluation's numbers."""
    epochs: dict[int | None, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "epoch":
            epochs[event["epoch"]] = {n: value for n, value in event.items() if n != "event"}
        elif event["event"] == "evaluation" and event["epoch"] in epochs:
            found = event["evaluation"]
            epochs[event["epoch"]] |= {
                f"{found['split']}/{name}": metric["value"]
                for name, metric in found["metrics"].items()
            }
    return [*epochs.values()]


def summary_of(events: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last event of a finished training; None for an unfinished one."""
    return events[-1] if events and events[-1]["event"] == "summary" else None


def final_evaluation(events: Sequence[dict[str, Any]]) -> Evaluation | None:
    """Return a finished training's evaluation of the best weights, on the test part if any."""
    from foretaste.evaluation.result import Evaluation

    summary = summary_of(events)
    evaluations = [event for event in events if event["event"] == "evaluation"]
    if summary is None or not evaluations:
        return None
    of_best = [event for event in evaluations if event["epoch"] == summary["best_epoch"]]
    return Evaluation.from_dict((of_best or evaluations)[-1]["evaluation"])

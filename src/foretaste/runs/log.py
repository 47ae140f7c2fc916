"""``metrics.jsonl``: one JSON object per event of a run, appended as it happens; its
epochs, and its copies: the lines in another file, two summaries, TensorBoard's event files."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, overload

from foretaste._util.atomic import atomic_file
from foretaste._util.files import followed, open_own, open_regular
from foretaste._util.formatting import html_table
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.runs.paths import reading, writing

if TYPE_CHECKING:
    import pyarrow as pa

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
}
"""Every name an event may carry at its top level, with its unit or meaning."""

_MAX_LINE = 64 << 20
"""Bytes; lines have a few KiB, an evaluation of thousands of metrics has a few MiB."""


def first_line() -> str:
    """The line that declares names and units."""
    return _as_line({"event": "schema", "not finite": "null", "units": UNITS})


def is_first_line(line: str) -> bool:
    """True for the first line of a log."""
    with suppress(ValueError):
        values = json.loads(line)
        return isinstance(values, dict) and values.get("event") == "schema"
    return False


def line_of(event: str, **values: Any) -> str:
    """The line of an event of the present time; numbers that are not finite become null."""
    undeclared = values.keys() - UNITS.keys()
    assert not undeclared, f"declare in UNITS first: {sorted(undeclared)}"
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return _as_line(_finite({"event": event, "time": time, **values}))


def _as_line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"


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
    """The events of one run, in the order they happened; the first declares names and units.

    What a killed writer left of a last line, which has no line feed, is not read, and dropped by
    the next writer.
    """

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
        """Add one event with the present time; every name must be declared in ``UNITS``."""
        line = line_of(event, **values)
        with writing(self.path), open_own(self.path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                end = file.read().rfind(b"\n") + 1
                file.truncate(end)
                file.seek(end)
            file.write(line.encode())
        for follower in self._followers:
            follower.add(line)

    def flush(self) -> int:
        """The length in bytes, once everything written so far is on the disk."""
        with writing(self.path), open_own(self.path, "r+b") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def lines(self) -> list[str]:
        """Every line, the first declares names and units; RunError names one that is no event."""
        return [line for line, _ in self._read()]

    def lines_until(self, num_bytes: int) -> list[str]:
        """The lines that it had when it was so long; RunError where it has lost some."""
        lines: list[str] = []
        length, found = 0, self._read()
        while length < num_bytes and (line := next(found, None)):
            lines.append(line[0])
            length += len(line[0].encode())
        if length != num_bytes:
            raise RunError(
                f"{self.path} lost lines: none ends after {num_bytes} bytes, where the saved "
                "training state belongs"
            )
        return lines

    def cut(self, lines: list[str], event: str | None = None, **values: Any) -> None:
        """Forget all but these first lines and add an event, if one is given, at one stroke."""
        lines = [*lines, *([line_of(event, **values)] if event else [])]
        with writing(self.path), atomic_file(self.path) as temporary:
            temporary.write_bytes("".join(lines).encode())
        for follower in self._followers:
            follower.begin(lines)

    def read(self) -> list[dict[str, Any]]:
        """Every event, the declaration first; RunError names a line that is none."""
        return [event for _, event in self._read()]

    @property
    def is_finished(self) -> bool:
        """True where a training came to its end."""
        return any(event["event"] == "summary" for event in self.read())

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with reading(self.path), open_regular(self.path) as file:
            for number in count(1):
                content = file.readline(_MAX_LINE)
                try:
                    if len(content) == _MAX_LINE:
                        raise ValueError(f"it is longer than {_MAX_LINE >> 20} MiB")
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


class RunHistory(Sequence[dict[str, Any]]):
    """The epochs of a training, first to last, each a dict of its numbers.

    All have ``epoch``, ``step``, ``loss``, ``train_s`` and ``samples_per_s``; some models and
    precisions others, such as ``beta`` and ``loss_scale``. An epoch that was evaluated has its
    metrics too: ``validation/ndcg@10``.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        epochs: dict[int | None, dict[str, Any]] = {}
        for event in events:
            if event["event"] == "epoch":
                numbers = {name: value for name, value in event.items() if name != "event"}
                epochs[event["epoch"]] = {"epoch": event["epoch"], **numbers}
            elif event["event"] == "evaluation" and event["epoch"] in epochs:
                found = event["evaluation"]
                epochs[event["epoch"]] |= {
                    f"{found['split']}/{name}": metric["value"]
                    for name, metric in found["metrics"].items()
                }
        self._epochs = list(epochs.values())

    def __len__(self) -> int:
        return len(self._epochs)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._epochs[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._epochs)

    def __repr__(self) -> str:
        if not self._epochs:
            return "RunHistory(no epochs)"
        first, last = self._epochs[0]["loss"], self._epochs[-1]["loss"]
        return f"RunHistory(epochs {len(self)}, loss {first} to {last})"

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        rows = [
            [f"{value:.6g}" if isinstance(value, float) else value or "" for value in row.values()]
            for row in table.to_pylist()
        ]
        return html_table(repr(self), table.column_names, rows)

    def to_arrow(self) -> pa.Table:
        """An Arrow table with a row for every epoch; numbers that it does not have are null."""
        import pyarrow as pa

        names = dict.fromkeys(name for epoch in self._epochs for name in epoch)
        return pa.table({name: [epoch.get(name) for epoch in self._epochs] for name in names})

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a DataFrame; MissingExtraError where pandas is not there."""
        if find_spec("pandas") is None:
            raise MissingExtraError("pandas is not installed; use to_arrow, or pip install pandas")
        return self.to_arrow().to_pandas()


def final_evaluation(events: Sequence[Mapping[str, Any]]) -> Evaluation | None:
    """The evaluation of a finished training's kept weights, on the test part where there is one."""
    from foretaste.evaluation.result import Evaluation

    summary = events[-1] if events else {}
    evaluations = [event for event in events if event["event"] == "evaluation"]
    if summary.get("event") != "summary" or not evaluations:
        return None
    of_best = [event for event in evaluations if event["epoch"] == summary["best_epoch"]]
    return Evaluation.from_dict((of_best or evaluations)[-1]["evaluation"])


_ARGS, _METRICS = "args.json", "metrics.json"
_KINDS = ("epoch", "evaluation", "summary")
_CHANGES_RESULTS = ("evaluation", "summary")
_WHY = "nothing is written over without --overwrite (overwrite=True in Python)"

TENSORBOARD = "tensorboard"
"""The directory of event files within the run directory."""


def check_log_path(path: Path, *, overwrite: bool = False) -> None:
    """Raise SettingError where no log can be written to ``path``, or something would be lost.

    A log may be replaced with ``overwrite``; what is no log never. What is no ordinary file, such
    as a pipe, may be written to, and so may an empty one.
    """
    if path.is_dir():
        raise SettingError(f"log_path is {path}, which is a directory; name a file")
    _check_can_be_made(path, path.absolute().parents, f"log_path is {path}")
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        may_replace = overwrite and is_first_line(file.readline())
    if not may_replace:
        why = "it is no log, and nothing else is replaced" if overwrite else _WHY
        raise SettingError(
            f"log_path is {path}, which is there already; {why}: name another file or remove it"
        )


def check_results_dir(directory: Path, *, overwrite: bool = False) -> None:
    """Raise SettingError where ``directory`` cannot be made or has results already.

    Results may be replaced with ``overwrite``.
    """
    folders = (directory, *directory.absolute().parents)
    _check_can_be_made(directory, folders, f"results_dir is {directory}")
    found = results_in(directory)
    if found and not overwrite:
        raise SettingError(
            f"results_dir is {directory}, which has {' and '.join(found)} already; "
            f"{_WHY}: name another directory or remove them"
        )


def results_in(directory: Path) -> list[str]:
    """The names of the results that are there."""
    return [name for name in (_ARGS, _METRICS) if (directory / name).is_file()]


def _check_can_be_made(path: Path, folders: Iterable[Path], setting: str) -> None:
    """SettingError, which begins with the ``setting``, where a file or link stands in the way."""
    found = next(part for part in folders if part.exists())
    if not found.is_dir():
        raise SettingError(f"{setting}, but {found} is not a directory")
    try:
        followed(path)
    except OSError as error:
        raise SettingError(
            f"{setting}, which cannot be written: {error.strerror}; name another"
        ) from error


def write_log(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Make ``path`` a log of one evaluation, as it is logged; RunError where that fails."""
    with closing(LogCopy(path)) as log:
        log.begin([first_line(), line_of("evaluation", evaluation=evaluation)])


class LogCopy:
    """Callback that writes the lines of a log to another file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pipe: TextIO | None = None

    def begin(self, lines: list[str]) -> None:
        text = "".join(lines)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and not self.path.is_file():
                # The reader of a pipe that is closed goes away, and opening it again would wait
                # for another.
                self._pipe = self._pipe or self.path.open("w", encoding="utf-8", newline="\n")
                self._pipe.write(text)
                self._pipe.flush()
            elif self.path.is_symlink():
                self.path.write_text(text, encoding="utf-8", newline="\n")
            else:
                with atomic_file(self.path) as temporary:
                    temporary.write_text(text, encoding="utf-8", newline="\n")

    def add(self, line: str) -> None:
        with writing(self.path):
            if self._pipe is not None:
                self._pipe.write(line)
                self._pipe.flush()
                return
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(line)

    def close(self) -> None:
        if self._pipe is not None:
            with writing(self.path):
                self._pipe.close()
            self._pipe = None


class Results:
    """Callback that keeps ``args.json``, the settings, and ``metrics.json``, the events by kind."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self.settings = settings
        self._events: list[dict[str, Any]] = []

    def begin(self, lines: list[str]) -> None:
        self._events = [json.loads(line) for line in lines]
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(_ARGS, self.settings)
            self._write_metrics()

    def add(self, line: str) -> None:
        event = json.loads(line)
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


def check_tensorboard() -> None:
    """MissingExtraError where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise MissingExtraError(
            "tensorboard is asked for and not installed; pip install tensorboard"
        )


class TensorBoard:
    """Callback that writes the numbers of a log as scalars of event files, by epoch.

    The files are made anew where the log begins anew.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer: Any = None

    def begin(self, lines: list[str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self.directory.is_symlink() or (self.directory.exists() and not self.directory.is_dir()):
            raise RunError(
                f"{self.directory} is no directory of the run's own: nothing is written there; "
                "remove it"
            )
        shutil.rmtree(self.directory, ignore_errors=True)
        self._writer = SummaryWriter(self.directory)
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        event = json.loads(line)
        scalars: dict[str, float] = {}
        if event["event"] == "epoch":
            scalars = {
                name: value
                for name, value in event.items()
                if isinstance(value, int | float) and name not in ("epoch", "step")
            }
        elif event["event"] == "evaluation":
            found = event["evaluation"]
            scalars = {
                f"{found['split']}/{name}".replace("@", "_at_"): metric["value"]
                for name, metric in found["metrics"].items()
            }
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, event["epoch"] or 0)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

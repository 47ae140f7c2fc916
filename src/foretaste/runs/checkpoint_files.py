"""Checkpoint files of a run: ``best.safetensors``, the weights of its best epoch, and
``resume.safetensors``, the state of its training.

Each is a safetensors file with a note: its owner, and the sha256 of tensors and note; where it has
shards, its note names them (see `saved_tensors`). The weights name nothing of one run, so equal
runs have equal files. The log of a run distinguishes the weights of one training from those of
another: it has their digest before they take their place.

PyTorch is imported where tensors are read or written, so a run opens without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.files import file_sha256
from foretaste.errors import RunError
from foretaste.runs.metrics_log import MetricsLog
from foretaste.runs.paths import CONFIG, lock_holder, resume_command
from foretaste.runs.saved_tensors import OwnRows, SavedTensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "best.safetensors"
STATE = "resume.safetensors"

KEPT = "best_weights"
"""The entry of an event: ``{"epoch": ..., "sha256": ...}``, or null where there are none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedState:
    """The state that a training goes on from."""

    tensors: dict[str, Tensor]
    """All that changes from update to update, by name; of what is sharded this rank's rows."""
    position: dict[str, Any]
    """The rest of it, as JSON values."""
    log_bytes: int
    """Length of the log then."""


class StateFile:
    """The saved state of a training; among ranks, all of them save and load."""

    def __init__(self, run_path: Path, log: MetricsLog) -> None:
        self.path = run_path / STATE
        self._log = log

    def save(
        self, tensors: Mapping[str, Tensor], position: Mapping[str, Any], own: OwnRows
    ) -> None:
        """Replace it; it remembers how long the log is now."""
        note = {}
        if own.ranks.is_first:
            note = {"log_bytes": self._log.flush(), "position": dict(position)}
        save_tensors(self.path, tensors, self._owner(), own, note=note)

    def load(self, own: OwnRows) -> SavedState | None:
        """The state, None where there is none; RunError where it or the log is not whole."""
        if own.ranks.on_first(lambda: not os.path.lexists(self.path)):
            return None
        try:
            saved = SavedTensors.open(self.path, self._owner(), own)
            position, log_bytes = saved.note["position"], saved.note["log_bytes"]
            own.ranks.on_first(lambda: len(self._log.lines_until(log_bytes)))
        except RunError as error:
            raise RunError(f"{error}. Remove {self.path} to begin this training anew") from error
        return SavedState(tensors=saved.tensors(), position=position, log_bytes=log_bytes)

    def _owner(self) -> dict[str, str]:
        return {"config_sha256": file_sha256(self.path.with_name(CONFIG))}


@dataclass(frozen=True, kw_only=True)
class WeightsRecord:
    """Weights by their digests, None for no weights, as a log has them so far.

    Their digest is in the log before they take their place, so those before them may still be there
    when a writer was killed in between.
    """

    logged: tuple[tuple[str, str | None], ...]
    """Time and digest of each, in order."""

    expected: tuple[str | None, ...]
    """Digests of those that may be in place: of the last, and of the one before."""

    epochs: Mapping[str | None, int | None]
    """The epoch of each digest; None where the model is fitted in one pass."""

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> WeightsRecord:
        """The record that these events make."""
        logged: list[tuple[str, str | None]] = []
        expected: tuple[str | None, ...] = (None,)
        epochs: dict[str | None, int | None] = {}
        for event in events:
            if event["event"] == "summary":
                expected = expected[-1:]
            if KEPT not in event:
                continue
            kept = event[KEPT] or {"epoch": None, "sha256": None}
            digest = kept["sha256"]
            logged.append((event["time"], digest))
            epochs[digest] = kept["epoch"]
            # Going on, a training names what is in place, and nothing else is from there on.
            expected = (digest,) if event["event"] == "resume" else (expected[-1], digest)
        return cls(logged=tuple(logged), expected=expected, epochs=epochs)

    def later_than(self, earlier: WeightsRecord) -> set[str | None]:
        """Digests that the log did not have yet when it had the ``earlier`` record."""
        return {digest for _, digest in set(self.logged) - set(earlier.logged)}


class BestWeights:
    """The weights of a run, saved and loaded together with the events of its log.

    Among ranks, all of them save and load; the first alone reads and writes the log.
    """

    def __init__(self, run_path: Path, log: MetricsLog, owner: Mapping[str, Any]) -> None:
        self.path = run_path / WEIGHTS
        self.loaded_epoch: int | None = None
        self.loaded_digest: str | None = None
        self._log = log
        self._owner = owner

    @property
    def are_there(self) -> bool:
        return os.path.lexists(self.path)

    def save(self, state_dict: Mapping[str, Tensor], epoch: int | None, own: OwnRows) -> None:
        """Log the digest of these weights, then have them replace those before."""

        def log(digest: str) -> None:
            self._log.append("weights", **{KEPT: {"epoch": epoch, "sha256": digest}})
            self._log.flush()

        save_tensors(self.path, state_dict, self._owner, own, before=log)

    def restore(self, state_dict: Mapping[str, Tensor]) -> None:
        """Write the weights that the log has as the last; RunError where these are others."""

        def check(digest: str) -> None:
            if digest != WeightsRecord.of(self._log.read()).expected[-1]:
                raise RunError("the weights were changed since they were trained; train them anew")

        save_tensors(self.path, state_dict, self._owner, OwnRows.all(), before=check)

    def load(self, own: OwnRows) -> SavedTensors:
        """The weights; RunError where they are not the log's."""
        record: WeightsRecord | None = None

        def look() -> None:
            nonlocal record
            record = WeightsRecord.of(self._log.read_sound())
            if not self.are_there:
                raise RunError(self._why_missing(record))

        own.ranks.on_first(look)
        weights = SavedTensors.open(self.path, self._owner, own)
        self.loaded_epoch = own.ranks.on_first(lambda: self._epoch_of(weights.digest, record))
        self.loaded_digest = weights.digest
        return weights

    def kept(self, own: OwnRows) -> dict[str, Any] | None:
        """The entry `KEPT` for the weights in place, None for none; RunError where they are not
        those of the log."""
        if own.ranks.on_first(
            lambda: not self.are_there and None in WeightsRecord.of(self._log.read_sound()).expected
        ):
            return None
        digest = self.load(own).digest
        return {"epoch": self.loaded_epoch, "sha256": digest}

    def _epoch_of(self, digest: str, record: WeightsRecord | None) -> int | None:
        """The epoch of weights that were loaded when the log had this record, or later."""
        assert record is not None
        if digest not in record.expected:
            # A training that goes on may have logged and written other weights meanwhile.
            earlier, record = record, WeightsRecord.of(self._log.read())
            if digest not in record.later_than(earlier):
                expected = " or ".join(known[:12] for known in record.expected if known)
                raise RunError(
                    f"{self.path} belongs to another run: its digest is {digest[:12]}, "
                    f"{self._log.path} says {expected or 'that there are no weights yet'}"
                )
        return record.epochs[digest]

    def _why_missing(self, record: WeightsRecord) -> str:
        run_path = self.path.parent
        if None not in record.expected:
            return f"{self.path} is missing: the run is not whole"
        if process := lock_holder(run_path):
            return (
                f"{run_path} has no {WEIGHTS} yet: it is being trained by {process}; wait for "
                "its first evaluation"
            )
        return (
            f"{run_path} has no {WEIGHTS}: its training ended before the first evaluation; "
            f"go on with it: {resume_command(run_path)}"
        )

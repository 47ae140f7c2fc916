"""``best.safetensors``: the weights of a run's best epoch, which its log knows.

Nothing of one run is in the file, so that equal runs have equal ones. What tells the weights of one
training from those of another is the log: it has their digest before they take their place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste.errors import RunError
from foretaste.runs.lock import lock_holder
from foretaste.runs.metrics_log import MetricsLog
from foretaste.runs.paths import resume_command

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "best.safetensors"

KEPT = "best_weights"
"""The entry of an event: ``{"epoch": ..., "sha256": ...}``, or null where there are none."""


@dataclass(frozen=True, kw_only=True)
class WeightsRecord:
    """Weights by their digests, None for no weights, as a log has them so far.

    Their digest is in the log before they take their place, so those before them may still be there
    when a writer was killed in between.
    """

    told: tuple[tuple[str, str | None], ...]
    """Time and digest of each, in order."""

    expected: tuple[str | None, ...]
    """Digests of those that may be in place: of the last, and of the one before."""

    epochs: Mapping[str | None, int | None]
    """The epoch of each digest; None where the model is fitted in one pass."""

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> WeightsRecord:
        """The record that these events make."""
        told: list[tuple[str, str | None]] = []
        expected: tuple[str | None, ...] = (None,)
        epochs: dict[str | None, int | None] = {}
        for event in events:
            if event["event"] == "summary":
                expected = expected[-1:]
            if KEPT not in event:
                continue
            kept = event[KEPT] or {"epoch": None, "sha256": None}
            digest = kept["sha256"]
            told.append((event["time"], digest))
            epochs[digest] = kept["epoch"]
            # Going on, a training names what is in place, and nothing else is from there on.
            expected = (digest,) if event["event"] == "resume" else (expected[-1], digest)
        return cls(told=tuple(told), expected=expected, epochs=epochs)

    def later_than(self, earlier: WeightsRecord) -> set[str | None]:
        """Digests that the log was not yet told of when it had the ``earlier`` record."""
        return {digest for _, digest in set(self.told) - set(earlier.told)}


class BestWeights:
    """The weights of a run, saved and loaded together with what its log says of them."""

    def __init__(self, run_path: Path, log: MetricsLog, owner: Mapping[str, Any]) -> None:
        self.path = run_path / WEIGHTS
        self.loaded_epoch: int | None = None
        self._log = log
        self._owner = owner

    @property
    def are_there(self) -> bool:
        return os.path.lexists(self.path)

    def save(self, state_dict: Mapping[str, Tensor], epoch: int | None) -> None:
        """Tell the log of these weights, then have them replace those before."""
        from foretaste.runs.tensor_file import SignedTensors

        weights = SignedTensors(state_dict, self._owner)
        self._log.append("weights", **{KEPT: {"epoch": epoch, "sha256": weights.digest}})
        self._log.flush()
        weights.write(self.path)

    def load(self) -> tuple[dict[str, Tensor], str]:
        """The weights, on the CPU, and their digest; RunError where they are not the log's."""
        from foretaste.runs.tensor_file import DIGEST, read_tensors

        before = WeightsRecord.of(self._log.read_sound())
        if not self.are_there:
            raise self._absent(before)
        tensors, note = read_tensors(self.path, self._owner)
        self.loaded_epoch = self._epoch_of(note[DIGEST], before)
        return tensors, note[DIGEST]

    def kept(self) -> dict[str, Any] | None:
        """What a log is told of the weights that are in place, None for none; RunError where they
        are not those it knows."""
        record = WeightsRecord.of(self._log.read_sound())
        if not self.are_there and None in record.expected:
            return None
        _, digest = self.load()
        return {"epoch": self.loaded_epoch, "sha256": digest}

    def _epoch_of(self, digest: str, before: WeightsRecord) -> int | None:
        """The epoch of weights that were read after the log was."""
        if digest in before.expected:
            return before.epochs[digest]
        # A training that goes on told its log of what it put in place meanwhile.
        record = WeightsRecord.of(self._log.read())
        if digest in record.later_than(before):
            return record.epochs[digest]
        expected = " or ".join(f"{known[:12]}" for known in record.expected if known)
        raise RunError(
            f"{self.path} belongs to another run: its digest is {digest[:12]}, {self._log.path} "
            f"says {expected or 'that there are no weights yet'}"
        )

    def _absent(self, record: WeightsRecord) -> RunError:
        """The reason why there are no weights."""
        run_path = self.path.parent
        if None not in record.expected:
            return RunError(f"{self.path} is missing: the run is not whole")
        if process := lock_holder(run_path):
            return RunError(
                f"{run_path} has no {WEIGHTS} yet: it is being trained by {process}; wait for its "
                "first evaluation"
            )
        return RunError(
            f"{run_path} has no {WEIGHTS}: its training ended before the first evaluation; "
            f"go on with it: {resume_command(run_path)}"
        )

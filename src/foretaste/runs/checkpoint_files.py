"""Checkpoint files of a run: ``best.safetensors``, the weights of its best epoch, and
``resume.safetensors``, the state of its training.

Each is a safetensors file with a note: what it holds, the digest of the run's config, and the
sha256 of tensors and note; where it has shards, its note names them (see `saved_tensors`). Equal
runs have equal files.

PyTorch is imported where tensors are read or written, so a run opens without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste.errors import RunError
from foretaste.runs.metrics_log import MetricsLog
from foretaste.runs.paths import lock_holder, resume_command
from foretaste.runs.saved_tensors import OwnRows, SavedTensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "best.safetensors"
STATE = "resume.safetensors"


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

    def __init__(self, run_path: Path, log: MetricsLog, owner: Mapping[str, Any]) -> None:
        self.path = run_path / STATE
        self._log = log
        self._owner = {**owner, "content": "training state"}

    def save(
        self, tensors: Mapping[str, Tensor], position: Mapping[str, Any], own: OwnRows
    ) -> None:
        """Replace it; it remembers how long the log is now."""
        note = {}
        if own.ranks.is_first:
            note = {"log_bytes": self._log.flush(), "position": dict(position)}
        save_tensors(self.path, tensors, self._owner, own, note=note)

    def load(self, own: OwnRows) -> SavedState | None:
        """The state, None where there is none; RunError where it or the log is not whole."""
        if own.ranks.on_first(lambda: not os.path.lexists(self.path)):
            return None
        try:
            saved = SavedTensors.open(self.path, self._owner, own)
            position, log_bytes = saved.note["position"], saved.note["log_bytes"]
            own.ranks.on_first(lambda: len(self._log.lines_until(log_bytes)))
        except RunError as error:
            raise RunError(f"{error}. Remove {self.path} to begin this training anew") from error
        return SavedState(tensors=saved.tensors(), position=position, log_bytes=log_bytes)


class BestWeights:
    """The weights of a run; among ranks, all of them save and load."""

    def __init__(self, run_path: Path, log: MetricsLog, owner: Mapping[str, Any]) -> None:
        self.path = run_path / WEIGHTS
        self.loaded_epoch: int | None = None
        self.loaded_digest: str | None = None
        self._log = log
        self._owner = {**owner, "content": "weights"}

    @property
    def are_there(self) -> bool:
        return os.path.lexists(self.path)

    def save(self, state_dict: Mapping[str, Tensor], epoch: int | None, own: OwnRows) -> None:
        """Have these weights, which are of ``epoch``, replace those before."""
        save_tensors(self.path, state_dict, self._owner, own, note={"epoch": epoch})

    def load(self, own: OwnRows) -> SavedTensors:
        """The weights; RunError where there are none, or those of another run."""

        def check_are_there() -> None:
            if not self.are_there:
                raise RunError(self._why_missing())

        own.ranks.on_first(check_are_there)
        weights = SavedTensors.open(self.path, self._owner, own)
        self.loaded_epoch = weights.note["epoch"]
        self.loaded_digest = weights.digest
        return weights

    @property
    def are_due(self) -> bool:
        """True once the log tells of weights: of an epoch that was evaluated, or of the end."""
        return any(event["event"] in ("evaluation", "summary") for event in self._log.read())

    def _why_missing(self) -> str:
        run_path = self.path.parent
        if self.are_due:
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

"""What one autoencoder step learns from."""

from __future__ import annotations

from dataclasses import dataclass

from foretaste.ops.histories import HistoryTensors


@dataclass(frozen=True, eq=False)
class HistoryBatch:
    """Histories to reconstruct, the number of this update and the keys of its random words."""

    histories: HistoryTensors
    update: int
    """Updates done before this one: the KL weight follows it."""

    updates_per_epoch: int
    """Turns updates into epochs, where the KL weight is to follow those."""

    dropout_key: int
    noise_key: int

    @property
    def num_samples(self) -> int:
        return len(self.histories)

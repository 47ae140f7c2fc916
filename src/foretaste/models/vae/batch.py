"""What one autoencoder step learns from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from foretaste.ops.histories import HistoryTensors


@dataclass(frozen=True, eq=False)
class HistoryBatch:
    """Histories to reconstruct, the number of this update and the keys of its random words.

    Number and keys are int64 [] on the device of the histories.
    """

    histories: HistoryTensors
    update: Tensor
    """Updates done before this one: the KL weight follows it."""

    updates_per_epoch: int
    """Turns updates into epochs, where the KL weight is to follow those."""

    dropout_key: Tensor
    noise_key: Tensor

    @property
    def num_samples(self) -> int:
        return len(self.histories)

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the batch."""
        histories = self.histories
        keys = (self.dropout_key, self.noise_key)
        return histories.offsets, histories.item_index, self.update, *keys

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> HistoryBatch:
        """Such a batch of other `tensors`."""
        offsets, item_index, update, dropout_key, noise_key = tensors
        histories = HistoryTensors(offsets, item_index, self.histories.num_items)
        return HistoryBatch(histories, update, self.updates_per_epoch, dropout_key, noise_key)

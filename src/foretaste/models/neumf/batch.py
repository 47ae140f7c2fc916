"""What one NeuMF step learns from.

Shape suffixes: B rows (an interaction with its negatives, or one sample), K candidates per row.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class InteractionBatch:
    """B rows of K candidates each, with their labels and weights.

    ``user_index_B`` and ``item_index_BK`` are int32; ``label_BK`` and ``weight_BK`` float32, of
    shape [B, K] or broadcast to it. The loss is the weighted sum, so weights carry the mean.
    """

    user_index_B: Tensor
    item_index_BK: Tensor
    label_BK: Tensor
    weight_BK: Tensor
    dropout_key: Tensor
    """Key of this step's dropout decisions, int64 []."""

    @property
    def num_samples(self) -> int:
        return self.item_index_BK.numel()

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, in the order of the fields."""
        return (
            self.user_index_B,
            self.item_index_BK,
            self.label_BK,
            self.weight_BK,
            self.dropout_key,
        )

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> InteractionBatch:
        """Such a batch of other `tensors`."""
        return InteractionBatch(*tensors)

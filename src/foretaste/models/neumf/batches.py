"""Batches of interactions with sampled negatives, made on the device.

Shape suffixes: N interactions of the training part, B rows of a batch (an interaction with its
negatives, or one sample), K candidates per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from foretaste._util.memory import require_memory
from foretaste.models.config import SamplingConfig
from foretaste.models.memory import free_on
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.negatives import Complement, sample_items, sample_negatives
from foretaste.ops.random import Permutation, Purpose, stream_key, stream_keys

_BYTES_PER_SAMPLE = 4
"""Of an epoch's samples: their items, int32. All else is of a batch, which goes in chunks."""


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

    first_row: Tensor
    """Rows of the whole batch before this one's, int64 []: not zero in a slice of a batch."""

    @property
    def num_samples(self) -> int:
        return self.item_index_BK.numel()

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, in the order of the fields."""
        return tuple(vars(self).values())

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> InteractionBatch:
        """Such a batch of other `tensors`."""
        return InteractionBatch(*tensors)

    def __getitem__(self, rows: slice) -> InteractionBatch:
        """Some rows, to compute on their own: losses of the slices of a batch add up to its own."""
        label, weight = (t[rows] if len(t) > 1 else t for t in (self.label_BK, self.weight_BK))
        return InteractionBatch(
            self.user_index_B[rows],
            self.item_index_BK[rows],
            label,
            weight,
            self.dropout_key,
            self.first_row + rows.indices(len(self.user_index_B))[0],
        )


class InteractionBatches:
    """Interactions and fresh negatives, for the NeuMF family."""

    def __init__(
        self, histories: HistoryTensors, sampling: SamplingConfig, batch_size: int, seed: int
    ) -> None:
        num_interactions = histories.item_index.numel()
        require_memory(
            num_interactions * (1 + sampling.negatives) * _BYTES_PER_SAMPLE,
            free_on(histories.device),
            f"an epoch of {num_interactions:,} interactions with {sampling.negatives:,} negatives "
            "each",
            "lower negatives",
        )
        self.sampling = sampling
        self.seed = seed
        self.item_index_N = histories.item_index
        self.user_index_N = histories.row_index().int()
        self.complement = Complement.of(histories)
        self.has_negatives_U = self.complement.sizes() > 0
        self.all_have_negatives = bool(self.has_negatives_U.all())
        self.group_size = 1 + sampling.negatives
        self.num_samples = self.item_index_N.numel() * self.group_size
        per_row = self.group_size if sampling.batch_layout == "grouped" else 1
        self.num_rows = self.num_samples // per_row
        self.rows_per_batch = max(1, batch_size // per_row)
        self.samples_per_batch = min(self.rows_per_batch, self.num_rows) * per_row
        self.label_K = torch.zeros(1, self.group_size, device=histories.device)
        self.label_K[0, 0] = 1.0
        self.no_rows = torch.zeros((), dtype=torch.int64, device=histories.device)

    @property
    def num_batches(self) -> int:
        return -(-self.num_rows // self.rows_per_batch)

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[InteractionBatch]:
        key = stream_key(self.seed, Purpose.NEGATIVES, number)
        num_negatives = self.sampling.negatives
        if self.sampling.verified_negatives:
            negatives_NK = sample_negatives(self.complement, self.user_index_N, num_negatives, key)
        else:
            num_items = self.complement.num_items
            negatives_NK = sample_items(num_items, self.user_index_N, num_negatives, key)
        device = negatives_NK.device
        key = stream_key(self.seed, Purpose.SHUFFLE, number)
        order = Permutation.keyed(key, self.num_rows, device).values()
        grouped = self.sampling.batch_layout == "grouped"
        make = self._grouped if grouped else self._shuffled
        first_update = number * self.num_batches
        updates = torch.arange(first_update, first_update + self.num_batches, device=device)
        keys = stream_keys(self.seed, Purpose.DROPOUT, updates)
        rows = torch.split(order, self.rows_per_batch)
        for row_B, dropout_key in zip(rows[first_batch:], keys[first_batch:], strict=True):
            yield make(row_B, negatives_NK, dropout_key)

    def _grouped(self, row_B: Tensor, negatives_NK: Tensor, key: Tensor) -> InteractionBatch:
        """An interaction and its negatives side by side, the interaction in column 0."""
        user_index_B = self.user_index_N[row_B]
        items_BK = torch.cat([self.item_index_N[row_B, None], negatives_NK[row_B]], dim=1)
        weight_BK = self._weights(user_index_B[:, None], self.label_K, items_BK.numel())
        return InteractionBatch(user_index_B, items_BK, self.label_K, weight_BK, key, self.no_rows)

    def _shuffled(self, row_B: Tensor, negatives_NK: Tensor, key: Tensor) -> InteractionBatch:
        """Samples on their own: sample s is candidate s % (1 + K) of interaction s // (1 + K)."""
        interaction_B, candidate_B = row_B // self.group_size, row_B % self.group_size
        user_index_B = self.user_index_N[interaction_B]
        negative_B = negatives_NK[interaction_B, (candidate_B - 1).clamp_(min=0)]
        positive_B = candidate_B == 0
        item_B = torch.where(positive_B, self.item_index_N[interaction_B], negative_B)
        label_B1 = positive_B.float()[:, None]
        weight_B1 = self._weights(user_index_B[:, None], label_B1, item_B.numel())
        return InteractionBatch(
            user_index_B, item_B[:, None], label_B1, weight_B1, key, self.no_rows
        )

    def _weights(self, user_index_B1: Tensor, label: Tensor, num_samples: int) -> Tensor:
        """1 / count for the batch's mean; 0 for the negatives of users who have every item."""
        if self.all_have_negatives or not self.sampling.verified_negatives:
            return torch.full((1, 1), 1.0 / num_samples, device=label.device)
        counts = (label > 0) | self.has_negatives_U[user_index_B1]
        return counts.float() / num_samples

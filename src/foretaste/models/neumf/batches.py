"""Batches of interactions with sampled negatives, made on the device.

Shape suffixes: N interactions of the training part, B rows of a batch (an interaction with its
negatives, or one sample), K candidates per row, S samples, I items, D the width of some table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from foretaste._util.memory import require_memory
from foretaste.models.memory import free_on
from foretaste.models.neumf.config import NegativesConfig
from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.negatives import Complement, sample_items, sample_negatives
from foretaste.ops.random import Permutation, Purpose, stream_key, stream_keys

_BYTES_PER_SAMPLE = 24
"""Memory of a batch for each sample: its item twice, int32, and its number among distinct items
twice, int64."""


@dataclass(frozen=True, eq=False)
class InteractionBatch:
    """B rows of K candidates each, with their labels and weights.

    ``user_index_B`` and ``item_index_BK`` are int32; ``label_BK`` and ``weight_BK`` float32, of
    shape [B, K] or broadcast to it. The loss is the weighted sum, so weights carry the mean.
    """

    num_samples: int
    """Number of samples of the whole batch, if this is a rank's part of it."""

    user_index_B: Tensor
    item_index_BK: Tensor
    label_BK: Tensor
    weight_BK: Tensor
    dropout_key: Tensor
    """Key of this step's dropout decisions, int64 []."""

    first_row: Tensor
    """Number of rows of the whole batch before this one's, int64 []."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor, in the order of the fields."""
        return tuple(value for value in vars(self).values() if isinstance(value, Tensor))

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> InteractionBatch:
        """Return this batch with other `tensors`."""
        return InteractionBatch(self.num_samples, *tensors)


class InteractionBatches:
    """Interactions and fresh negatives, for the NeuMF family.

    Batches are cut from a permutation of all rows. Each holds its rows in ascending order, so that
    consecutive users have consecutive rows of it.

    Args:
        histories: of all users, or of the consecutive users of a part: then only their rows of the
            batches are made.
        parts: the parts that share the users.
    """

    def __init__(
        self,
        histories: HistoryTensors,
        config: NegativesConfig,
        batch_size: int,
        seed: int,
        parts: Shards = SINGLE,
    ) -> None:
        num_negatives = config.num_negatives
        num_here = torch.tensor(histories.item_index.numel(), device=histories.device)
        self.config = config
        self.seed = seed
        self.parts = parts
        self.first_interaction = int(parts.prefix_sum(num_here))
        self.histories = histories
        self.item_index_N = histories.item_index
        self.user_index_N = histories.row_index().int()
        self.complement = Complement.of(histories)
        self.has_negatives_U = self.complement.sizes() > 0
        self.all_have_negatives = bool(self.has_negatives_U.all())
        self.group_size = 1 + num_negatives
        self.num_samples = int(parts.total(num_here)) * self.group_size
        self.samples_per_row = self.group_size if config.batch_layout == "grouped" else 1
        self.num_rows = self.num_samples // self.samples_per_row
        self.rows_per_batch = max(1, batch_size // self.samples_per_row)
        self.samples_per_batch = min(self.rows_per_batch, self.num_rows) * self.samples_per_row
        require_memory(
            self.samples_per_batch * _BYTES_PER_SAMPLE,
            free_on(histories.device),
            f"a batch of {self.samples_per_batch:,} samples with {num_negatives:,} negatives "
            "an interaction",
            "lower batch_size or negatives",
        )
        self.label_K = torch.zeros(1, self.group_size, device=histories.device)
        self.label_K[0, 0] = 1.0

    @property
    def num_batches(self) -> int:
        return -(-self.num_rows // self.rows_per_batch)

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[InteractionBatch]:
        row_N, num_rows = self._rows(number)
        first_rows = self.parts.prefix_sum(num_rows)
        rows = torch.split(row_N, num_rows.tolist())  # sync: once per epoch
        key = stream_key(self.seed, Purpose.NEGATIVES, number)
        first_update = number * self.num_batches
        updates = torch.arange(first_update, first_update + self.num_batches, device=row_N.device)
        # Keys follow the number of the update: an epoch resumed in its middle has the same keys.
        keys = stream_keys(self.seed, Purpose.DROPOUT, updates)
        drawn = self._draw(rows[first_batch:], key)
        for batch in range(first_batch, self.num_batches):
            num_left = self.num_samples - batch * self.samples_per_batch
            num_samples = min(self.samples_per_batch, num_left)
            user_index_B, item_index_BK, label_BK = next(drawn)
            weight_BK = self._weights(user_index_B[:, None], label_BK, num_samples)
            samples = user_index_B, item_index_BK, label_BK, weight_BK
            yield InteractionBatch(num_samples, *samples, keys[batch], first_rows[batch])

    def _draw(self, rows: tuple[Tensor, ...], key: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield users, items and labels of each batch of an epoch.

        Negatives belong to a row and not to a batch, so batches may be drawn together.
        """
        is_grouped = self.config.batch_layout == "grouped"
        make = self._group_samples if is_grouped else self._shuffle_samples
        limits = LIMITS[self.item_index_N.device.type]
        batches_at_once = max(1, limits.drawn_samples // self.samples_per_batch)
        for start in range(0, len(rows), batches_at_once):
            block = rows[start : start + batches_at_once]
            user_B, item_BK, label_BK = make(torch.cat(block), key)
            sizes = [len(row_B) for row_B in block]
            labels = [label_BK] * len(block) if is_grouped else torch.split(label_BK, sizes)
            yield from zip(
                torch.split(user_B, sizes), torch.split(item_BK, sizes), labels, strict=True
            )

    def _rows(self, number: int) -> tuple[Tensor, Tensor]:
        """Return this part's rows, batch after batch of an epoch, and each batch's size: int64.

        The rows of a batch ascend.
        """
        device = self.item_index_N.device
        key = stream_key(self.seed, Purpose.SHUFFLE, number)
        # The permutation is over the rows of all parts. Its inverse says in which batch a row of
        # this part is, without the others' rows.
        position_of = Permutation.keyed(key, self.num_rows, device).inverse()
        rows_each = self.group_size // self.samples_per_row
        first_row = self.first_interaction * rows_each
        num_here = self.item_index_N.numel() * rows_each
        batch_N = torch.empty(num_here, dtype=torch.int32, device=device)
        at_once = LIMITS[device.type].positions
        for start in range(0, num_here, at_once):
            stop = min(start + at_once, num_here)
            row = torch.arange(first_row + start, first_row + stop, device=device)
            batch_N[start:stop] = position_of(row) // self.rows_per_batch
        num_rows = torch.bincount(batch_N, minlength=self.num_batches)
        return _counting_sort(batch_N, num_rows), num_rows

    def _negatives(self, user_B: Tensor, key: int, number_B: Tensor, num_each: int) -> Tensor:
        """Return draws of some rows, int32 [B, num_each], by their numbers among all."""
        # A row's draws follow from its number among all rows: a rank draws what one process would.
        drawn = user_B, num_each, key, number_B
        if self.config.verified_negatives:
            return sample_negatives(self.complement, *drawn)
        return sample_items(self.complement.num_items, *drawn)

    def _group_samples(self, row_B: Tensor, key: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return users, items and labels: an interaction in column 0, its negatives beside it."""
        user_B, number_B = self.user_index_N[row_B], self.first_interaction + row_B
        negatives_BK = self._negatives(user_B, key, number_B, self.config.num_negatives)
        items_BK = torch.cat([self.item_index_N[row_B, None], negatives_BK], dim=1)
        return user_B, items_BK, self.label_K

    def _shuffle_samples(self, row_B: Tensor, key: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return single samples: sample s is candidate s % g of interaction s // g, in groups of
        g."""
        interaction_B, candidate_B = row_B // self.group_size, row_B % self.group_size
        user_B, number_B = self.user_index_N[interaction_B], self.first_interaction + interaction_B
        # The word that `_group_samples` has for this draw: both layouts have the same negatives.
        number_B = number_B * self.config.num_negatives + (candidate_B - 1).clamp_(min=0)
        negative_B = self._negatives(user_B, key, number_B, 1).squeeze(1)
        positive_B = candidate_B == 0
        item_B = torch.where(positive_B, self.item_index_N[interaction_B], negative_B)
        return user_B, item_B[:, None], positive_B.float()[:, None]

    def _weights(self, user_index_B1: Tensor, label: Tensor, num_samples: int) -> Tensor:
        """1 / count for the batch's mean; 0 for the negatives of users who have every item."""
        if self.all_have_negatives or not self.config.verified_negatives:
            # One number, broadcast: no weights of a whole batch are written.
            return torch.full((1, 1), 1.0 / num_samples, device=label.device)
        counts = (label > 0) | self.has_negatives_U[user_index_B1]
        return counts.float() / num_samples


def _counting_sort(group_N: Tensor, num_members: Tensor) -> Tensor:
    """Return the stable order that sorts N numbers of groups, int64, in bounded memory beside it.

    Each block is sorted on its own, and its members go behind the members of earlier blocks.
    """
    order_N = torch.empty(len(group_N), dtype=torch.int64, device=group_N.device)
    bounds = torch.arange(len(num_members) + 1, dtype=group_N.dtype, device=group_N.device)
    place = num_members.cumsum(0) - num_members
    at_once = LIMITS[group_N.device.type].positions
    for start in range(0, len(group_N), at_once):
        sorted_n, order_n = torch.sort(group_N[start : start + at_once], stable=True)
        offsets = torch.searchsorted(sorted_n, bounds)
        index_n = torch.arange(len(sorted_n), device=group_N.device)
        index_n += (place - offsets[:-1]).index_select(0, sorted_n)
        order_N[index_n] = order_n.add_(start)
        place += offsets.diff()
    return order_N

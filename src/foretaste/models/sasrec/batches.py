"""Batches of the newest items of each user, and of the item behind each of them.

Shape suffixes: U users with a row, R rows of a batch, W places of its longest row, S its steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import (
    Permutation,
    Purpose,
    hash_words,
    logical_shift_right,
    stream_key,
    stream_keys,
)

ENTRIES_AT_ONCE = 1 << 22
"""Interactions that are sorted at a time: sorting takes 40 bytes of each."""

_JITTER_BITS = 32


@dataclass(frozen=True, eq=False)
class StepBatch:
    """Rows of items, oldest first, and the item that follows each.

    Pads stand behind a row's last place and hold its last item. Tensors are on one device.
    """

    item_index_RW: Tensor
    """int64 [R, W]."""

    step_index_S: Tensor
    """The real places, ascending, in the flat rows: int64 [S]."""

    target_S: Tensor
    """The item behind each real place, int32 [S]."""

    dropout_key: Tensor
    """int64 []."""

    first_row: Tensor
    """Rows of the whole batch before these, int64 []: not zero in a rank's part of a batch."""

    num_samples: int
    """Steps of the whole batch, where this is a rank's part of it."""

    parts: Shards
    """The ranks that share the batch."""


class StepBatches:
    """Rows of like length, each in one batch of every epoch; a row's steps stay together.

    A row is a user's newest ``max_length + 1`` items. All but its first are targets of a step. An
    epoch orders the rows by their steps, and rows of as many steps at random. The row behind n
    steps belongs to batch ``floor(n * num_batches / all steps)``, and batches come in random order.
    As a batch has room for any row, none is empty. So every epoch has as many batches, and which
    rows they have follows from seed and epoch alone. The host knows their shapes before a batch is
    cut, so nothing waits for the device. Each of the ``parts`` has some rows of a batch.
    """

    def __init__(
        self,
        histories: HistoryTensors,
        max_length: int,
        batch_size: int,
        seed: int,
        *,
        parts: Shards = SINGLE,
    ) -> None:
        self.seed = seed
        self.parts = parts
        length_U = histories.lengths()
        has_row_U = length_U > 1
        kept_U = length_U.clamp(max=max_length + 1)
        self.item_index_N = newest_items(histories, kept_U)
        """The newest items of all users, oldest first."""
        start_U = (kept_U.cumsum(0) - kept_U)[has_row_U]
        self.start_U, self.num_steps_U = start_U.cpu(), (kept_U[has_row_U] - 1).cpu()  # sync: once
        self.num_samples = int(self.num_steps_U.sum())
        longest = int(self.num_steps_U.max()) if self.num_samples else 1
        most = max(1, self.num_samples // longest)
        self.num_batches = min(-(-self.num_samples // batch_size), most)
        self.samples_per_batch = self.num_samples // max(1, self.num_batches)

    def most(self) -> tuple[int, int]:
        """Return the most places of a batch, pads included, and the most steps, of any epoch.

        No batch needs to have both.
        """
        num_steps_U = self.num_steps_U.sort().values
        bounds = self._bounds(num_steps_U)
        places = steps = 0
        for start, stop in pairwise(bounds):
            rows = num_steps_U[start:stop]
            places = max(places, len(rows) * int(rows[-1]))
            steps = max(steps, int(rows.sum()))
        return places, steps

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[StepBatch]:
        device, num_batches = self.item_index_N.device, self.num_batches
        key = stream_key(self.seed, Purpose.SHUFFLE, number)
        row_U, bound_of_batch = self._order(key)
        first_update = number * num_batches
        updates = torch.arange(first_update, first_update + num_batches, device=device)
        dropout_keys = stream_keys(self.seed, Purpose.DROPOUT, updates)
        order = Permutation.keyed(stream_key(key, Purpose.SHUFFLE), num_batches, "cpu").values()
        for place, batch in enumerate(order.tolist()[first_batch:], first_batch):
            rows = row_U[bound_of_batch[batch] : bound_of_batch[batch + 1]]
            yield self._batch(rows, dropout_keys[place])

    def _order(self, key: int) -> tuple[Tensor, list[int]]:
        """Sort the rows of an epoch; also return the bounds of its batches."""
        jitter_U = logical_shift_right(
            hash_words(key, torch.arange(len(self.num_steps_U))), 64 - _JITTER_BITS
        )
        row_U = torch.argsort((self.num_steps_U << _JITTER_BITS) + jitter_U, stable=True)
        return row_U, self._bounds(self.num_steps_U[row_U])

    def _bounds(self, num_steps_U: Tensor) -> list[int]:
        """Return the first row of each batch and the end of the last, for rows in this order."""
        before_U = num_steps_U.cumsum(0) - num_steps_U
        batch_U = before_U * self.num_batches // max(1, self.num_samples)
        bounds: list[int] = torch.searchsorted(batch_U, torch.arange(self.num_batches + 1)).tolist()
        return bounds

    def _batch(self, rows: Tensor, dropout_key: Tensor) -> StepBatch:
        """Cut this part's share of a batch."""
        part, device = self.parts.part_of(len(rows)), self.item_index_N.device
        own = rows[part.start : part.stop]
        num_samples = int(self.num_steps_U[rows].sum())
        num_steps_R = self.num_steps_U[own]
        own_samples, width = int(num_steps_R.sum()), int(num_steps_R.max()) if len(own) else 1
        start_R, num_steps_R = self.start_U[own].to(device), num_steps_R.to(device)
        place_W = torch.arange(width, device=device)
        # A pad is the row's last item again: a real one, so that no pad can be a NaN.
        entry_RW = start_R[:, None] + torch.minimum(place_W, num_steps_R[:, None] - 1)
        before_R = num_steps_R.cumsum(0) - num_steps_R
        row_start_R = torch.arange(len(own), device=device) * width
        shift_RX = torch.stack((row_start_R - before_R, start_R + 1 - before_R), dim=1)
        shift_SX = (
            torch.repeat_interleave(shift_RX, num_steps_R, dim=0, output_size=own_samples)
            + torch.arange(own_samples, device=device)[:, None]
        )
        return StepBatch(
            item_index_RW=self.item_index_N[entry_RW].long(),
            step_index_S=shift_SX[:, 0].contiguous(),
            target_S=self.item_index_N[shift_SX[:, 1]],
            dropout_key=dropout_key,
            first_row=torch.full((), part.start, dtype=torch.int64, device=device),
            num_samples=num_samples,
            parts=self.parts,
        )


def newest_items(histories: HistoryTensors, num_B: Tensor) -> Tensor:
    """Return the newest ``num_B`` items of each row, oldest first, row by row: int32.

    The function sorts one chunk of rows after another, so memory hardly exceeds the result.
    """
    if len(histories) == 1:  # as a service asks
        assert histories.position is not None, "these histories have no order"
        order_N = histories.position.argsort()
        return histories.item_index[order_N[len(order_N) - int(num_B) :]]
    offsets = F.pad(num_B.cumsum(0), (1, 0))
    newest_N = torch.empty(int(offsets[-1]), dtype=torch.int32, device=histories.device)
    num_entries = max(1, histories.item_index.numel())
    cuts = torch.arange(0, num_entries, ENTRIES_AT_ONCE, device=histories.device)
    bounds = torch.unique(torch.searchsorted(histories.offsets, cuts)).tolist()
    for start, stop in zip(bounds, [*bounds[1:], len(histories)], strict=True):
        some = histories[start:stop]
        # Rows lie one behind the other in `oldest_first`; the newest items end a row.
        place_N = torch.arange(some.item_index.numel(), device=some.device)
        first_B = some.offsets[1:] - num_B[start:stop]
        is_kept_N = place_N >= first_B.repeat_interleave(some.lengths(), output_size=len(place_N))
        ordered_N = some.item_index[some.oldest_first()]
        newest_N[offsets[start] : offsets[stop]] = ordered_N[is_kept_N]
    return newest_N

"""Batches of windows of histories, and of the item behind each item of a window.

Shape suffixes: U users, N items of all histories, V windows of all histories, R rows of a batch, W
places of its longest row, S its steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.random import (
    Permutation,
    Purpose,
    hash_words,
    logical_shift_right,
    stream_key,
    stream_keys,
)

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
    """Number of steps of the whole batch, if this is a rank's part of it."""

    parts: Shards
    """The ranks that share the batch."""


class StepBatches:
    """Rows of like length, each in one batch of every epoch; a row's steps stay together.

    A row is a window of ``max_length + 1`` items of a history. All but its first are targets of a
    step. Windows are cut from the newest item backwards, and the first item of a window is the last
    of the window before, so an epoch has each step of a history once. On ml-1m windows of 200 items
    gained .0103 (.0022 to .0185) HR@10 over each user's newest 200, in equally many seconds. An
    epoch orders the rows by their steps, and rows with equally many steps at random. The row behind
    n steps belongs to batch ``floor(n * num_batches / all steps)``, and batches come in random
    order. As a batch has room for any row, none is empty. So every epoch has equally many batches,
    and their rows follow from seed and epoch alone. The host knows their shapes before a batch is
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
        length_U = histories.lengths().cpu()  # sync: once
        self.item_index_N = newest_items(histories, int(length_U.max()) if len(length_U) else 0)
        """The items of all histories, the oldest of each first."""
        self.start_V, self.num_steps_V = _windows(length_U, max_length)
        self.num_samples = int(self.num_steps_V.sum())
        longest = int(self.num_steps_V.max()) if self.num_samples else 1
        most = max(1, self.num_samples // longest)
        self.num_batches = min(-(-self.num_samples // batch_size), most)
        self.samples_per_batch = self.num_samples // max(1, self.num_batches)

    def most(self) -> tuple[int, int]:
        """Return the most places of a batch, pads included, and the most steps, of any epoch.

        No batch needs to have both.
        """
        num_steps_V = self.num_steps_V.sort().values
        bounds = self._bounds(num_steps_V)
        places = steps = 0
        for start, stop in pairwise(bounds):
            rows = num_steps_V[start:stop]
            places = max(places, len(rows) * int(rows[-1]))
            steps = max(steps, int(rows.sum()))
        return places, steps

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[StepBatch]:
        device, num_batches = self.item_index_N.device, self.num_batches
        key = stream_key(self.seed, Purpose.SHUFFLE, number)
        row_V, bound_of_batch = self._order(key)
        first_update = number * num_batches
        updates = torch.arange(first_update, first_update + num_batches, device=device)
        dropout_keys = stream_keys(self.seed, Purpose.DROPOUT, updates)
        order = Permutation.keyed(stream_key(key, Purpose.SHUFFLE), num_batches, "cpu").values()
        for place, batch in enumerate(order.tolist()[first_batch:], first_batch):
            rows = row_V[bound_of_batch[batch] : bound_of_batch[batch + 1]]
            yield self._batch(rows, dropout_keys[place])

    def _order(self, key: int) -> tuple[Tensor, list[int]]:
        """Sort the rows of an epoch; also return the bounds of its batches."""
        jitter_V = logical_shift_right(
            hash_words(key, torch.arange(len(self.num_steps_V))), 64 - _JITTER_BITS
        )
        row_V = torch.argsort((self.num_steps_V << _JITTER_BITS) + jitter_V, stable=True)
        return row_V, self._bounds(self.num_steps_V[row_V])

    def _bounds(self, num_steps_V: Tensor) -> list[int]:
        """Return the first row of each batch and the end of the last, for rows in this order."""
        before_V = num_steps_V.cumsum(0) - num_steps_V
        batch_V = before_V * self.num_batches // max(1, self.num_samples)
        bounds: list[int] = torch.searchsorted(batch_V, torch.arange(self.num_batches + 1)).tolist()
        return bounds

    def _batch(self, rows: Tensor, dropout_key: Tensor) -> StepBatch:
        """Cut this part's share of a batch."""
        part, device = self.parts.part_of(len(rows)), self.item_index_N.device
        own = rows[part.start : part.stop]
        start_R, num_steps_R = self.start_V[own], self.num_steps_V[own]
        width = int(num_steps_R.max()) if len(own) else 1
        entry_RW = padded_entries(start_R, num_steps_R, width)
        is_step_RW = torch.arange(width) < num_steps_R[:, None]
        step_index_S = is_step_RW.flatten().nonzero()[:, 0]
        target_S = entry_RW.flatten()[step_index_S] + 1
        return StepBatch(
            item_index_RW=self.item_index_N[entry_RW.to(device)].long(),
            step_index_S=step_index_S.to(device),
            target_S=self.item_index_N[target_S.to(device)],
            dropout_key=dropout_key,
            first_row=torch.full((), part.start, dtype=torch.int64, device=device),
            num_samples=int(self.num_steps_V[rows].sum()),
            parts=self.parts,
        )


def _windows(length_U: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    """Return the first entry and the number of steps of each window, [V] both."""
    num_steps_U = (length_U - 1).clamp(min=0)
    num_windows_U = (num_steps_U + max_length - 1) // max_length
    user_V = torch.arange(len(length_U)).repeat_interleave(num_windows_U)
    # Newer windows of the same user before each window.
    newer_V = torch.arange(len(user_V)) - (num_windows_U.cumsum(0) - num_windows_U)[user_V]
    stop_V = num_steps_U[user_V] - newer_V * max_length
    start_V = (stop_V - max_length).clamp(min=0)
    return (length_U.cumsum(0) - length_U)[user_V] + start_V, stop_V - start_V


def padded_entries(start_R: Tensor, num_R: Tensor, width: int) -> Tensor:
    """Return the entries [R, W] of rows of `newest_items` that begin at ``start_R``.

    A pad is the row's last item again: a real one, so that no pad can be a NaN.
    """
    place_W = torch.arange(width, device=start_R.device)
    return start_R[:, None] + torch.minimum(place_W, num_R[:, None] - 1)


def newest_items(histories: HistoryTensors, most: int) -> Tensor:
    """Return at most the newest ``most`` items of each row, oldest first, row by row: int32."""
    num_entries, num_rows = histories.item_index.numel(), len(histories)
    if num_entries > LIMITS[histories.device.type].sorted_entries and num_rows > 1:
        halves = histories[: num_rows // 2], histories[num_rows // 2 :]
        return torch.cat([newest_items(half, most) for half in halves])
    # Rows lie one behind the other in this order, so the newest items end a row.
    order_N = histories.oldest_first()
    if num_rows == 1:  # as a service asks
        return histories.item_index[order_N[max(0, num_entries - most) :]]
    place_N = torch.arange(num_entries, device=histories.device)
    is_newest_N = histories.offsets[1:][histories.row_index()] - place_N <= most
    return histories.item_index[order_N[is_newest_N]]

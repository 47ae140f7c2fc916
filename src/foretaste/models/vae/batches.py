"""Batches of whole histories, for the autoencoders.

Shape suffixes: U users of the training part, B users of a batch, N their interactions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.models.batches import power_of_two
from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import Permutation, Purpose, stream_key, stream_keys

_DEVIATIONS = 6.0
"""A padded batch has room for this many standard deviations more entries than the mean."""


def small_batch(num_users: int, largest: int) -> int:
    """Return a tenth of the users, rounded down to a power of two, from 64 to ``largest``."""
    return power_of_two(num_users // 10, 64, largest)


@dataclass(frozen=True, eq=False)
class HistoryBatch:
    """Histories to reconstruct, the number of this update and the keys of its random words.

    Numbers and keys are int64 [] on the device of the histories.
    """

    histories: HistoryTensors
    update: Tensor
    """Updates done before this one: the KL weight follows it."""

    updates_per_epoch: int
    """Turns updates into epochs, if annealing is given in epochs."""

    dropout_key: Tensor
    noise_key: Tensor

    first_row: Tensor
    """Number of users of the whole batch before this part of it; 0 if this is the whole."""

    num_samples: int
    """Number of users of the whole batch, if this is a rank's part of it."""

    parts: Shards
    """The parts that share the batch."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor of the batch."""
        histories = self.histories
        numbers = (self.update, self.dropout_key, self.noise_key, self.first_row)
        return histories.offsets, histories.item_index, *numbers

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Self:
        """Return this batch with other `tensors`."""
        offsets, item_index, update, dropout_key, noise_key, first_row = tensors
        histories = replace(self.histories, offsets=offsets, item_index=item_index)
        return replace(
            self,
            histories=histories,
            update=update,
            dropout_key=dropout_key,
            noise_key=noise_key,
            first_row=first_row,
        )


class HistoryBatches:
    """Users in shuffled order, each of them in every epoch; the last batch holds what is left.

    The host knows how many interactions a batch has before it is cut, so nothing waits for the
    device within an epoch. With ``padded``, entries beyond the last offset bring every full batch
    to one size. A CUDA graph of the step needs that, and only kernels that read the offsets can
    take padding. Each of the ``parts`` has some users of a batch.
    """

    def __init__(
        self,
        histories: HistoryTensors,
        batch_size: int,
        seed: int,
        *,
        padded: bool = False,
        parts: Shards = SINGLE,
    ) -> None:
        self.histories = histories
        self.batch_size = batch_size
        self.seed = seed
        self.parts = parts
        self.num_samples = len(histories)
        self.samples_per_batch = min(batch_size, self.num_samples)
        self.length_U = histories.lengths().cpu()  # sync: once
        self.num_entries = 0
        """Entries of a padded batch. A batch that has more, which is very rare, stays as it is."""
        if padded:
            lengths, num_users = self.length_U.double(), len(parts.part_of(batch_size))
            # A sum of n independent lengths deviates by root n times the deviation of one.
            deviation = float(lengths.std(correction=0)) * math.sqrt(num_users)
            room = num_users * float(lengths.mean()) + _DEVIATIONS * deviation
            self.num_entries = min(math.ceil(room), int(self.length_U.sum()))

    @property
    def num_batches(self) -> int:
        # Rounded up. With whole batches alone, as in NVIDIA's code, 18,373 of the 116,677 users of
        # ML-20M would be left out of each epoch.
        return -(-self.num_samples // self.batch_size)

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[HistoryBatch]:
        key = stream_key(self.seed, Purpose.SHUFFLE, number)
        # On the CPU: the host needs the lengths of a batch to cut it, and would wait for a GPU.
        order_U = Permutation.keyed(key, self.num_samples, "cpu").values()
        batches = torch.split(order_U, self.batch_size)
        rows = [self.parts.part_of(len(user_B)) for user_B in batches]
        own = [user_B[part.start : part.stop] for user_B, part in zip(batches, rows, strict=True)]
        totals = [int(self.length_U[user_B].sum()) for user_B in own]
        user_U = torch.cat(own).to(self.histories.device)
        user_BU = torch.split(user_U, [len(part) for part in rows])
        first_rows = torch.tensor([part.start for part in rows]).to(user_U.device)
        first_update, num_batches = number * self.num_batches, self.num_batches
        updates = torch.arange(first_update, first_update + num_batches, device=user_U.device)
        dropout_keys = stream_keys(self.seed, Purpose.DROPOUT, updates)
        noise_keys = stream_keys(self.seed, Purpose.NOISE, updates)
        for batch_number in range(first_batch, num_batches):
            num_samples = len(batches[batch_number])
            is_full = num_samples == self.batch_size
            yield HistoryBatch(
                histories=self._rows(user_BU[batch_number], totals[batch_number], is_full),
                update=updates[batch_number],
                updates_per_epoch=self.num_batches,
                dropout_key=dropout_keys[batch_number],
                noise_key=noise_keys[batch_number],
                first_row=first_rows[batch_number],
                num_samples=num_samples,
                parts=self.parts,
            )

    def _rows(self, user_B: Tensor, num_entries: int, is_full: bool) -> HistoryTensors:
        """Return the histories of some users, with ``num_entries`` interactions in all."""
        rows = self.histories.rows(user_B, num_entries)
        if is_full and num_entries < self.num_entries:
            padded_N = F.pad(rows.item_index, (0, self.num_entries - num_entries))
            rows = replace(rows, item_index=padded_N)
        return rows


Phase = Literal["encoder", "decoder"]


@dataclass(frozen=True, eq=False)
class PhaseBatch(HistoryBatch):
    """A batch that trains one of the two halves of an autoencoder."""

    phase: Phase
    begins_epoch: bool


@dataclass(frozen=True, eq=False)
class AlternatingBatches:
    """Epochs of several passes that train the encoder, then one that trains the decoder."""

    one_pass: HistoryBatches
    encoder_passes: int

    @property
    def num_batches(self) -> int:
        return (self.encoder_passes + 1) * self.one_pass.num_batches

    @property
    def num_samples(self) -> int:
        return (self.encoder_passes + 1) * self.one_pass.num_samples

    @property
    def samples_per_batch(self) -> int:
        return self.one_pass.samples_per_batch

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[PhaseBatch]:
        first_pass, skipped = divmod(first_batch, self.one_pass.num_batches)
        for pass_number in range(first_pass, self.encoder_passes + 1):
            phase: Phase = "encoder" if pass_number < self.encoder_passes else "decoder"
            # Passes are numbered through all epochs: each has its own order and random words.
            overall = number * (self.encoder_passes + 1) + pass_number
            for batch in self.one_pass.epoch(overall, skipped):
                begins_epoch = pass_number == 0 and skipped == 0
                yield PhaseBatch(**vars(batch), phase=phase, begins_epoch=begins_epoch)
                skipped += 1
            skipped = 0

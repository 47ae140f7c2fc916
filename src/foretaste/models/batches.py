"""Batches as training sees them, and the one batch of models that take all data at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from torch import Tensor

from foretaste.ops.histories import HistoryTensors


class Batch(Protocol):
    """Samples of one update for the training loop; only the model knows their further contents."""

    @property
    def num_samples(self) -> int:
        """Samples of the whole batch; this rank may have only a part of them."""
        ...


class TensorBatch(Batch, Protocol):
    """A batch of tensors alone; its step can be recorded, and replayed for other batches."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor of the batch; padded full batches have the same shapes."""
        ...

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Self:
        """Return this batch with other `tensors`."""
        ...


class Batches(Protocol):
    """The training data, cut into the batches of an epoch."""

    @property
    def num_batches(self) -> int: ...

    @property
    def num_samples(self) -> int:
        """Samples in an epoch."""
        ...

    @property
    def samples_per_batch(self) -> int:
        """Samples in a full batch."""
        ...

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[Batch]:
        """Return the batches of one epoch from ``first_batch`` on; the last holds the rest."""
        ...


@dataclass(frozen=True, eq=False)
class WholeData:
    """All histories as the one batch of an epoch."""

    histories: HistoryTensors
    num_batches: ClassVar[int] = 1

    @property
    def num_samples(self) -> int:
        return len(self.histories)

    samples_per_batch = num_samples

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[WholeData]:
        return iter([self][first_batch:])


def power_of_two(value: int, smallest: int, largest: int) -> int:
    """Return the largest power of two that is at most ``value``, between bounds: a batch size."""
    return min(max((1 << max(0, value).bit_length()) >> 1, smallest), largest)

"""Ranks: the processes of one training, and the collectives between them.

`Ranks` is all that other rooms see of `torch.distributed`. A single process is `ALONE`, whose
collectives leave their tensors as they are.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from foretaste.errors import RankError

_BUCKETED_BYTES = 1 << 20
"""Smaller tensors travel together."""


class Pending:
    """An all-reduce under way."""

    def __init__(self, works: Sequence[Any] = (), bucket: Tensor | None = None) -> None:
        self._works = works
        self._bucket = bucket
        self._small: list[Tensor] = []

    def wait(self) -> None:
        """Have the tensors hold the sums; on a GPU, have the current stream wait for them."""
        for work in self._works:
            work.wait()
        if self._bucket is not None:
            sums = torch.split(self._bucket, [tensor.numel() for tensor in self._small])
            for tensor, total in zip(self._small, sums, strict=True):
                tensor.copy_(total.view_as(tensor))
        self._works, self._bucket = (), None


class Ranks:
    """One process among ``size``, numbered ``rank``; every collective is called by all of them.

    ``num_bytes`` counts the payload of this process's collectives by their kind.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.num_bytes: Counter[str] = Counter()

    @property
    def is_first(self) -> bool:
        """True of the one that writes files and logs."""
        return self.rank == 0

    def part_of(self, size: int) -> range:
        """The contiguous part of ``size`` things that is this rank's: equal parts but for one."""
        return range(size * self.rank // self.size, size * (self.rank + 1) // self.size)

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks, the same bits on each of them."""
        self.sum_later(tensors).wait()

    def sum_later(self, tensors: Iterable[Tensor]) -> Pending:
        """Begin a `sum_`; small tensors of one dtype travel in one flat bucket."""
        if self.size == 1:
            return Pending()
        tensors = [tensor for tensor in tensors if tensor.numel()]
        small = [tensor for tensor in tensors if tensor.nbytes < _BUCKETED_BYTES]
        large = [tensor for tensor in tensors if tensor.nbytes >= _BUCKETED_BYTES]
        pending = Pending()
        if small:
            pending._bucket = torch.cat([tensor.reshape(-1) for tensor in small])
            pending._small = small
            large.append(pending._bucket)
        pending._works = [self._reduce(tensor, dist.ReduceOp.SUM, wait=False) for tensor in large]
        return pending

    def max_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its maximum over the ranks; returns it."""
        if self.size > 1:
            self._reduce(tensor, dist.ReduceOp.MAX)
        return tensor

    def min_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its minimum over the ranks; returns it."""
        if self.size > 1:
            self._reduce(tensor, dist.ReduceOp.MIN)
        return tensor

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks in their order; they may differ in their first size alone."""
        if self.size == 1:
            return [tensor]
        lengths = [len(tensor)] * self.size
        counts = torch.zeros(self.size, dtype=torch.int64, device=tensor.device)
        counts[self.rank] = len(tensor)
        self._reduce(counts, dist.ReduceOp.SUM)
        lengths = counts.tolist()
        padded = tensor.new_zeros(max(lengths), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in lengths]
        self.num_bytes["all-gather"] += padded.nbytes
        dist.all_gather(parts, padded)
        return [part[:length] for part, length in zip(parts, lengths, strict=True)]

    def union(self, index: Tensor, size: int, at_most: int) -> Tensor:
        """The distinct numbers among integers of all ranks in [0, size), ascending, int64 [N].

        They are ``at_most`` so many over all ranks. Sent are they, or a byte for each in the range.
        """
        if self.size == 1 or 4 * at_most < size:
            distinct: Tensor = torch.unique(torch.cat(self.gathered(torch.unique(index.int()))))
            return distinct.long()
        is_among = torch.zeros(size, dtype=torch.uint8, device=index.device)
        is_among[index.long()] = 1
        return self.max_(is_among).nonzero()[:, 0]

    def to_first(self, tensor: Tensor) -> list[Tensor]:
        """The tensors [N, ...] of all ranks on the first, no more than one under way at a time.

        Nothing on the others. Of CPU tensors, which differ in their first size alone.
        """
        if self.size == 1:
            return [tensor]
        if not self.is_first:
            dist.send(torch.tensor(len(tensor)), 0)
            dist.send(tensor.contiguous(), 0)
            self.num_bytes["send"] += tensor.nbytes
            return []
        parts = [tensor]
        for rank in range(1, self.size):
            length = torch.tensor(0)
            dist.recv(length, rank)
            parts.append(tensor.new_empty(int(length), *tensor.shape[1:]))
            dist.recv(parts[-1], rank)
        return parts

    def any(self, flag: bool) -> bool:
        """True where any rank says so."""
        if self.size == 1:
            return flag
        return bool(self.max_(torch.tensor(int(flag))).item())

    def agreed(self, value: Any) -> Any:
        """The JSON value of the first rank, on every rank."""
        if self.size == 1:
            return value
        text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
        length = torch.tensor(len(text))
        dist.broadcast(length, 0)
        if self.rank:
            text = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, 0)
        self.num_bytes["broadcast"] += text.nbytes
        return json.loads(bytes(text.tolist()))

    def on_first(self, action: Callable[[], Any]) -> Any:
        """The JSON value of ``action``, which the first rank alone does.

        Where it raises, all do: the others a RankError.
        """
        if self.size == 1:
            return action()
        if not self.is_first:
            found = self.agreed(None)
            if "error" in found:
                raise RankError(f"rank 0: {found['error']}")
            return found["value"]
        try:
            value = action()
        except BaseException as error:
            self.agreed({"error": str(error)})
            raise
        self.agreed({"value": value})
        return value

    def _reduce(self, tensor: Tensor, operation: Any, *, wait: bool = True) -> Any:
        self.num_bytes["all-reduce"] += tensor.nbytes
        work = dist.all_reduce(tensor, operation, async_op=True)
        if wait and work is not None:
            work.wait()
        return work


def union_bytes(size: int, at_most: int) -> int:
    """Bytes that a `Ranks.union` communicates."""
    return min(size, 4 * at_most)


ALONE = Ranks()
"""A single process."""


@contextmanager
def joined() -> Iterator[Ranks]:
    """Yield the ranks that torchrun started this process among; `ALONE` without it.

    A process group that the caller has initialised is used, and stays.
    """
    if dist.is_available() and dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size())
        return
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()

"""Ranks: the processes of one training, and the collectives between them.

A single process is `ALONE`, whose collectives leave their tensors as they are.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from socket import gethostname
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from foretaste._util.system import CaughtSignals
from foretaste.errors import (
    Interrupted,
    RankError,
    Report,
    SettingError,
    attach_report,
)
from foretaste.models.parts import Shards
from foretaste.ops.device import resolve_device

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_BUCKETED_BYTES = 1 << 20
"""Tensors below this size travel together in one: a collective costs a round trip each."""

_PIECE_BYTES = 1 << 24
"""Bytes that are sent to the first rank at a time: the memory beside the tensors themselves."""


_Value = TypeVar("_Value")


class PendingSums:
    """An all-reduce under way."""

    def __init__(self) -> None:
        self._works: Sequence[dist.Work] = ()
        self._bucket: Tensor | None = None
        self._small: list[Tensor] = []

    def wait(self) -> None:
        """Put the sums into the tensors; on a GPU, let the current stream wait for the sums."""
        with _explain_failures():
            for work in self._works:
                work.wait()
        if self._bucket is not None:
            # The bucket is a copy, so its sums go back into the tensors.
            sums = torch.split(self._bucket, [tensor.numel() for tensor in self._small])
            for tensor, total in zip(self._small, sums, strict=True):
                tensor.copy_(total.view_as(tensor))
        self._works, self._bucket = (), None


class Ranks(Shards):
    """One process among ``size``, numbered ``rank``; every collective is called by all of them.

    Collectives pair up by the order of the calls. So whether a rank calls one may depend only on
    what all ranks know alike.

    It is ``local_rank`` of the ``local_size`` on its machine. ``num_bytes`` counts the payload of
    this process's collectives by their kind. ``names`` are the ranks as messages name them.
    ``patient`` is the process group for waiting while one rank works: it has a longer timeout.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        *,
        local_rank: int = 0,
        local_size: int = 1,
        names: Sequence[str] = (),
        patient: ProcessGroup | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size
        self.names = names or [f"rank {number}" for number in range(size)]
        self.patient = patient
        self.num_bytes: Counter[str] = Counter()

    @property
    def is_first(self) -> bool:
        """True for the rank that writes files and logs."""
        return self.rank == 0

    def part_of(self, size: int) -> range:
        """Return this rank's consecutive share of ``size`` things; shares differ by at most one."""
        return range(size * self.rank // self.size, size * (self.rank + 1) // self.size)

    def total(self, tensor: Tensor) -> Tensor:
        self.sum_(tensor := tensor.clone())
        return tensor

    def largest(self, tensor: Tensor) -> Tensor:
        return self.max_(tensor.clone())

    def prefix_sum(self, tensor: Tensor) -> Tensor:
        # [ranks, 1, ...]: those before this one, added up; zeros on the first.
        return torch.stack(self.gather(tensor[None]))[: self.rank].sum(0)[0]

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks, the same bits on each of them."""
        self.sum_later(tensors).wait()

    def sum_later(self, tensors: Iterable[Tensor]) -> PendingSums:
        """Begin a `sum_`; small tensors of one dtype travel in one flat bucket."""
        if self.size == 1:
            return PendingSums()
        tensors = [tensor for tensor in tensors if tensor.numel()]
        small = [tensor for tensor in tensors if tensor.nbytes < _BUCKETED_BYTES]
        large = [tensor for tensor in tensors if tensor.nbytes >= _BUCKETED_BYTES]
        pending = PendingSums()
        # Which tensors go into the bucket follows from their sizes, which are equal on all ranks.
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

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks in order; only their first sizes may differ."""
        if self.size == 1:
            return [tensor]
        # Each rank fills in its own length, so a sum gives all of them to all.
        counts = torch.zeros(self.size, dtype=torch.int64, device=tensor.device)
        counts[self.rank] = len(tensor)
        self._reduce(counts, dist.ReduceOp.SUM)
        lengths = counts.tolist()  # sync
        # `all_gather` takes equal shapes.
        padded = tensor.new_zeros(max(lengths), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in lengths]
        self.num_bytes["all-gather"] += padded.nbytes
        with _explain_failures():
            dist.all_gather(parts, padded)
        return [part[:length] for part, length in zip(parts, lengths, strict=True)]

    def union(self, index: Tensor, size: int, at_most: int) -> Tensor:
        """Return the distinct integers of all ranks, in [0, size), ascending: int64 [N].

        All ranks together have at most ``at_most`` of them, repeats included; it is the same on
        each. The numbers are sent, or one byte for each possible number, whichever is less.
        """
        # An int32 has 4 bytes.
        if self.size == 1 or 4 * at_most < size:
            distinct: Tensor = torch.unique(torch.cat(self.gather(torch.unique(index.int()))))
            return distinct.long()
        is_among = torch.zeros(size, dtype=torch.uint8, device=index.device)
        is_among[index.long()] = 1
        return self.max_(is_among).nonzero()[:, 0]

    def send_to_first(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield on the first rank the rows [N, ...] of all ranks, in order, on the CPU.

        A bounded piece at a time is under way. The others yield nothing and send theirs; all must
        exhaust it. Tensors may differ in their first size alone.
        """
        # Rows have one shape on all ranks, so sender and receiver cut into the same pieces.
        row = tensor.new_empty(1, *tensor.shape[1:], device="cpu")
        num_rows = max(1, _PIECE_BYTES // max(1, row.nbytes))
        if not self.is_first:
            with _explain_failures():
                dist.send(torch.tensor(len(tensor)), 0, self.patient)
                for start in range(0, len(tensor), num_rows):
                    piece = tensor[start : start + num_rows].detach().cpu().contiguous()
                    dist.send(piece, 0, self.patient)
            self.num_bytes["send"] += tensor.nbytes
            return
        yield tensor.detach().cpu()
        for rank in range(1, self.size):
            length = int(self._receive(torch.tensor(0), rank))
            for start in range(0, length, num_rows):
                piece = row.new_empty(min(num_rows, length - start), *row.shape[1:])
                yield self._receive(piece, rank)

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        self.sum_(torch.zeros(1))

    def broadcast(self, value: _Value) -> _Value:
        """Return the JSON value of the first rank, on every rank."""
        if self.size == 1:
            return value
        agreed: _Value = self._broadcast(value, None)
        return agreed

    def _broadcast(self, value: object, group: ProcessGroup | None) -> Any:
        # JSON, and not `broadcast_object_list`: that unpickles what another process sends.
        text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
        # The length goes first: a broadcast takes tensors of one shape on all ranks.
        length = torch.tensor(len(text))
        with _explain_failures():
            dist.broadcast(length, 0, group)
            if self.rank:
                text = torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(text, 0, group)
        self.num_bytes["broadcast"] += text.nbytes
        return json.loads(bytes(text.tolist()))

    def run_on_first(self, action: Callable[[], _Value]) -> _Value:
        """Return the JSON value of ``action``, done on the first rank only, however long it takes.

        If the work raises, all ranks raise: the others a RankError, or Interrupted itself. A rank
        that waits acts on its own signal afterwards. The first gets the signal too and saves.
        """
        if self.size == 1:
            return action()
        if not self.is_first:
            # A collective under way cannot be left by one rank without failing all the others, so a
            # signal is kept until the first rank is done.
            with CaughtSignals(lambda number: None) as caught:
                found = self._broadcast(None, self.patient)
            # All ranks raise what the first raised, so that no rank enters the next collective.
            if "signal" in found:
                raise Interrupted(found["error"], found["signal"])
            if "error" in found:
                raise _repeat_error(f"rank 0: {found['error']}")
            if caught.last is not None:
                os.kill(os.getpid(), caught.last)
            done: _Value = found["value"]
            return done
        try:
            value = action()
        except Interrupted as error:
            self._broadcast({"error": str(error), "signal": error.signal_number}, self.patient)
            raise
        except BaseException as error:
            self._broadcast({"error": str(error)}, self.patient)
            raise
        self._broadcast({"value": value}, self.patient)
        return value

    def run_on_each(self, action: Callable[[], _Value]) -> list[_Value]:
        """Return the JSON values of ``action`` on all ranks, in their order.

        If the work raises on one rank, all raise: the others a RankError.
        """
        if self.size == 1:
            return [action()]
        failure = None
        try:
            answer: dict[str, Any] = {"value": action()}
        except BaseException as error:
            names_it = isinstance(error, RankError)
            message = str(error) if names_it else f"rank {self.rank}: {error}"
            failure, answer = error, {"error": message}
        # A rank that failed takes part in the gathering too, or the others would wait for it.
        text = torch.frombuffer(bytearray(json.dumps(answer).encode()), dtype=torch.uint8)
        answers = [json.loads(bytes(part.tolist())) for part in self.gather(text)]
        if failure is not None:
            raise failure
        for answer in answers:
            if "error" in answer:
                raise _repeat_error(answer["error"])
        return [answer["value"] for answer in answers]

    def check_alike(self, facts: Mapping[str, object]) -> None:
        """Raise RankError on all ranks if a JSON value of one differs from the first rank's."""
        if self.size == 1:
            return
        if different := difference(self.run_on_each(lambda: dict(facts)), self.names):
            raise RankError(f"{different}. All ranks need the same")

    def device(self, name: str) -> torch.device:
        """Return the device called ``name``; among ranks, ``auto`` and ``cuda`` are a GPU for each.

        Raises SettingError if a machine has fewer GPUs than ranks, and for a GPU by number.
        """
        if self.size > 1 and name.startswith("cuda:"):
            raise SettingError(
                f"device is {name!r}, one GPU for {self.size} ranks; with cuda or auto each rank "
                "takes its own"
            )
        num_here, num_gpus = self.local_size, torch.cuda.device_count()
        if self.size > 1 and self.local_rank < num_gpus:
            torch.cuda.set_device(self.local_rank)
        device = resolve_device(name)
        if self.size > 1 and device.type == "cuda" and num_here > num_gpus:
            raise SettingError(
                f"{num_here} ranks were started on {gethostname()}, which has {num_gpus} GPUs; "
                f"start torchrun with --nproc-per-node {num_gpus}, or train with --device cpu"
            )
        return device

    def _receive(self, tensor: Tensor, rank: int) -> Tensor:
        with _explain_failures():
            dist.recv(tensor, rank, self.patient)
        return tensor

    def _reduce(
        self, tensor: Tensor, operation: dist.ReduceOp.RedOpType, *, wait: bool = True
    ) -> dist.Work:
        self.num_bytes["all-reduce"] += tensor.nbytes
        with _explain_failures():
            work: dist.Work = dist.all_reduce(tensor, operation, async_op=True)
            if wait:
                work.wait()
        return work


@contextmanager
def _explain_failures() -> Iterator[None]:
    """Raise RankError if a collective in the block fails."""
    try:
        yield
    except torch.OutOfMemoryError:  # a RuntimeError too, but this rank's own
        raise
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError(
            f"another rank ended or did not answer in time, so all end ({reason})"
        ) from error


def _repeat_error(message: str) -> RankError:
    """Return the error of one rank, to be raised on the others; that one prints it."""
    return attach_report(RankError(message), Report(is_printed=True))


def union_bytes(size: int, at_most: int) -> int:
    """Return the bytes that `Ranks.union` communicates."""
    return min(size, 4 * at_most)


def difference(facts: Sequence[Mapping[str, object]], names: Sequence[object]) -> str | None:
    """Return facts in which a rank differs from the first, for people; None if all are alike."""
    found = []
    for name, value in facts[0].items():
        for other, who in zip(facts, names, strict=True):
            if other.get(name) != value:
                found.append(f"{name} is {value} on rank 0 and {other.get(name)} on {who}")
                break
    return "; ".join(found) or None


ALONE = Ranks()
"""A single process."""

"""The strategy of several ranks, which train together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from foretaste._util.files import file_sha256
from foretaste.data.dataset import Dataset
from foretaste.distributed.checkpoint import SharedCheckpoints
from foretaste.distributed.collectives import Ranks
from foretaste.distributed.interruption import SharedInterruption
from foretaste.distributed.launch import join_ranks
from foretaste.distributed.ranking import SharedRanking
from foretaste.distributed.step import SharedStep
from foretaste.errors import RankError
from foretaste.models.base import IterativeModel
from foretaste.models.batches import Batches
from foretaste.models.config import Sharing
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.files import CONFIG
from foretaste.runs.run import Run
from foretaste.training.auto import TrainingPlan
from foretaste.training.checkpoint import Checkpoints
from foretaste.training.state import TrainingState
from foretaste.training.step import Step, make_step
from foretaste.training.strategy import ALONE, Strategy

SEEN_WITHIN_S = 30.0
"""Time that a network file system may take to show a directory that another machine made."""

_ONE_FILE_SYSTEM = "all nodes need one file system with the dataset and the run"

_Value = TypeVar("_Value")
RunOrDataset = TypeVar("RunOrDataset", bound=Dataset | Run)


def _wait_for(place: Path, ranks: Ranks) -> None:
    """Wait until this rank sees a directory of the first rank; RankError if it never does."""
    ends = time.monotonic() + SEEN_WITHIN_S
    while not place.is_dir():
        if time.monotonic() > ends:
            raise RankError(
                f"{ranks.names[ranks.rank]} does not see {place}, which rank 0 has; "
                f"{_ONE_FILE_SYSTEM}"
            )
        time.sleep(0.1)
        with suppress(OSError):
            next(place.parent.iterdir(), None)  # makes network file systems look again


@contextmanager
def strategy_of_ranks() -> Iterator[Strategy]:
    """Join the ranks that were started, if any, and yield the strategy of their trainings.

    Raises what `foretaste.distributed.launch.join_ranks` raises.
    """
    with join_ranks() as ranks:
        yield strategy_of(ranks)


def strategy_of(ranks: Ranks) -> Strategy:
    """Return the strategy of these ranks; one rank has the strategy of a single process."""
    return ALONE if ranks.size == 1 else Shared(ranks)


class Shared(Strategy):
    """Ranks share out all users, with their rows of the tables, or the users of each batch.

    Samples, metrics and files equal a single process's. The first rank writes files.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = self.parts = ranks
        self.hardware = {"num_ranks": ranks.size}
        self.ranking = partial(SharedRanking, ranks)
        self.is_main = ranks.is_first
        self.num_processes_here = ranks.local_size

    def device(self, name: str) -> torch.device:
        return self.ranks.device(name)

    def recorded_device(self, name: str) -> torch.device:
        return self.ranks.device(name.partition(":")[0])

    def check_alike(self, facts: Mapping[str, object]) -> None:
        self.ranks.check_alike(facts)

    def on_main(self, action: Callable[[], _Value]) -> _Value:
        return self.ranks.run_on_first(action)

    def open_on_all(
        self, make: Callable[[], RunOrDataset], reopen: Callable[[str], RunOrDataset]
    ) -> RunOrDataset:
        """Return the dataset or run that the first rank makes or opens; the others open its path.

        Raises RankError with the rank and the path if a rank finds nothing there, or another.
        """
        made: list[RunOrDataset] = []

        def path() -> str:
            made.append(make())
            return str(made[0].path.absolute())

        place = Path(self.ranks.run_on_first(path))

        def digest() -> str:
            if not made:
                _wait_for(place, self.ranks)
                made.append(reopen(str(place)))
            found = made[0]
            if isinstance(found, Dataset):
                return found.manifest.digest
            return file_sha256(found.path / CONFIG)

        # A path may be another directory on another machine, so what it holds is compared.
        digests = self.ranks.run_on_each(digest)
        for who, found in zip(self.ranks.names, digests, strict=True):
            if found != digests[0]:
                raise RankError(
                    f"{who} finds another {type(made[0]).__name__.lower()} at {place} than rank 0, "
                    f"{found[:12]} instead of {digests[0][:12]}; {_ONE_FILE_SYSTEM}"
                )
        return made[0]

    def users(
        self, parallel: Sharing | None, bounds: Callable[[int], Sequence[int]]
    ) -> range | None:
        if parallel != "users":
            return None
        # Consecutive users with about as many interactions for each rank.
        starts = bounds(self.ranks.size)
        return range(starts[self.ranks.rank], starts[self.ranks.rank + 1])

    def batches_and_step(
        self, model: IterativeModel, histories: HistoryTensors, plan: TrainingPlan
    ) -> tuple[Batches, Step]:
        # All ranks together have the batch size: R ranks take the same steps as one process.
        batches = model.make_batches(
            histories, batch_size=plan.batch_size, seed=plan.seed, parts=self.ranks
        )
        return batches, make_step(model, plan, partial(SharedStep, ranks=self.ranks))

    def barrier(self) -> None:
        self.ranks.barrier()

    def broadcast(self, value: float) -> float:
        return float(self.ranks.broadcast(value))

    def checkpoints(
        self, run: Run, step: Step, state: TrainingState, hardware: Mapping[str, Any]
    ) -> Checkpoints:
        return SharedCheckpoints(self.ranks, run, step, state, hardware)

    def interruption(self, run_path: Path) -> SharedInterruption:
        return SharedInterruption(self.ranks, run_path)

"""How a training is carried out: in this module, by one process.

Several processes that train together are another strategy, `foretaste.distributed.strategy.Shared`.
Training asks a strategy wherever the two differ, and nowhere knows which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from foretaste.data.dataset import Dataset
from foretaste.evaluation.evaluator import Ranking
from foretaste.models.base import IterativeModel
from foretaste.models.batches import Batches
from foretaste.models.config import Sharing
from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors
from foretaste.runs.run import Run
from foretaste.training.auto import TrainingPlan
from foretaste.training.checkpoint import Checkpoints
from foretaste.training.cuda_graph import CudaGraphRecorder, RecordedStep
from foretaste.training.interruption import Interruption
from foretaste.training.state import TrainingState
from foretaste.training.step import Step, is_recorded, make_step

RunOrDataset = TypeVar("RunOrDataset", bound=Run | Dataset)
Value = TypeVar("Value")


class Strategy:
    """A training by this process: it has all users, every row of the tables, and writes files."""

    hardware: Mapping[str, Any] = {}
    """Facts that a run records beside the device."""

    parts: Shards = SINGLE
    """The parts of the model's training."""

    ranking: Callable[..., Ranking] = Ranking
    """Ranks the held-out users."""

    is_main = True
    """Whether this process writes files and shows the training."""

    num_processes_here = 1
    """Processes of this training that share the memory of this machine."""

    def device(self, name: str) -> torch.device:
        """Return the device called ``name``; SettingError if it is not there."""
        return resolve_device(name)

    def recorded_device(self, name: str) -> torch.device:
        """Return the device of a resumed training that began on the one called ``name``."""
        return resolve_device(name)

    def check_alike(self, facts: Mapping[str, Any]) -> None:
        """Raise RankError if JSON values differ among the processes that train."""

    def on_main(self, action: Callable[[], Value]) -> Value:
        """Return the JSON value of ``action``, which one of the ranks does."""
        return action()

    def open_on_all(
        self, make: Callable[[], RunOrDataset], reopen: Callable[[str], RunOrDataset]
    ) -> RunOrDataset:
        """Return a dataset or run that one of the ranks makes, and the others open by its path."""
        return make()

    def users(
        self, parallel: Sharing | None, bounds: Callable[[int], Sequence[int]]
    ) -> range | None:
        """Return the users whose interactions and rows are here, if they are a part of all.

        ``bounds(n)`` gives the n + 1 user numbers that cut the data into n equal parts.
        """
        return None

    def batches_and_step(
        self, model: IterativeModel, histories: HistoryTensors, plan: TrainingPlan
    ) -> tuple[Batches, Step]:
        """Return the batches of a plan and the update by one; set ``model``'s first weights."""
        # This is asked before the batches are made, because recording pads them, and again once the
        # size of a full batch is known.
        padded = is_recorded(model, plan, plan.batch_size)
        batches = model.make_batches(
            histories, batch_size=plan.batch_size, seed=plan.seed, padded=padded
        )
        num_samples = batches.samples_per_batch  # fewer if the data have fewer samples
        if not is_recorded(model, plan, num_samples):
            return batches, make_step(model, plan)
        recorder = CudaGraphRecorder(model.device)
        recorded = partial(RecordedStep, recorder=recorder, num_samples=num_samples)
        return batches, make_step(model, plan, recorded)

    def barrier(self) -> None:
        """Wait until all processes of the training have come here."""

    def broadcast(self, value: float) -> float:
        """Return the value that decides for all ranks."""
        return value

    def checkpoints(
        self, run: Run, step: Step, state: TrainingState, hardware: Mapping[str, Any]
    ) -> Checkpoints:
        """Return the object that saves and loads the weights and the state of a run."""
        return Checkpoints(run, step, state, hardware)

    def interruption(self, run_path: Path) -> Interruption:
        """Note signals while a training runs."""
        return Interruption(run_path)


ALONE: Strategy = Strategy()


def strategy_here() -> AbstractContextManager[Strategy]:
    """Return the strategy for a training: for the processes of `torchrun` if it started them.

    Raises what `foretaste.distributed.launch.join_ranks` raises.
    """
    # This is the only place where training looks for other processes.
    from foretaste.distributed.strategy import strategy_of_ranks

    return strategy_of_ranks()

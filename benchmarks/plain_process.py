"""The plain loop in a process of its own, as its authors would run it.

Our settings of the C library's memory do not reach it, and neither side reuses the other's freed
memory. Both sides use the benchmark's threads.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.plain_neumf import PlainNeuMFTraining
from benchmarks.plain_vae import PlainVAETraining
from foretaste.bench.measure import PeakMemory, load_libraries, time_call
from foretaste.bench.train import Epochs
from foretaste.errors import TrainingError
from foretaste.evaluation.ranking import to_device
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig

if TYPE_CHECKING:
    from foretaste.data.histories import Histories
    from foretaste.training.auto import TrainingPlan

PlainTraining = PlainNeuMFTraining | PlainVAETraining


@dataclass(frozen=True)
class PlainCase:
    """A training for the plain loop."""

    model: NeuMFConfig | VAEConfig
    histories: Histories
    plan: TrainingPlan
    precision: str
    chunk: int | None
    """Samples or users at once; None finds the best by trying."""
    num_threads: int

    def build(self) -> PlainTraining:
        """The loop with its model, optimizer and data on the device."""
        histories = to_device(self.histories, torch.device(self.plan.device))
        options: dict[str, Any] = {"chunk": self.chunk, "precision": self.precision}
        if isinstance(self.model, NeuMFConfig):
            return PlainNeuMFTraining(self.model, histories, self.plan, **options)
        return PlainVAETraining(self.model, histories, self.plan, **options)


class PlainProcess:
    """The plain loop of ``case`` in its process, an epoch at a time; ends with its maker.

    Raises the loop's errors, and TrainingError if the process ends early.
    """

    def __init__(self, case: PlainCase) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            self.chunk: int
            self.epochs: Epochs
            self.chunk, self.epochs = self._answer(_build, case)
        except BaseException:
            self.close()
            raise

    def train_epoch(self, is_warmup: bool) -> None:
        """Train one more epoch, and count it in ``epochs``."""
        seconds, memory = self._answer(_train_epoch)
        self.epochs.add(seconds, is_warmup, memory)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()

    def _answer(self, work: Callable[..., Any], *arguments: object) -> Any:
        try:
            return self._pool.submit(work, *arguments).result()
        except BrokenProcessPool as error:
            raise TrainingError(
                "the process of the plain loop ended, often for want of memory; "
                "choose a smaller --shape"
            ) from error


_built: list[tuple[PlainTraining, PeakMemory]] = []
"""The training of this process if the process runs the plain loop."""


def _build(case: PlainCase) -> tuple[int, Epochs]:
    torch.set_num_threads(case.num_threads)
    device = torch.device(case.plan.device)
    load_libraries(device)
    memory = PeakMemory(device)
    build_s = time_call(lambda: _built.append((case.build(), memory)), device)
    training, _ = _built[0]
    return training.chunk, Epochs(training.num_samples, build_s=build_s)


def _train_epoch() -> tuple[float, dict[str, Any]]:
    training, memory = _built[0]
    return training.epoch(), memory.as_numbers()

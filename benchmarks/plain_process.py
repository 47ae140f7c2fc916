"""The plain loop in a process of its own, as those who write such loops run them.

How our training has the C library keep memory does not reach it, and neither side's freed memory
serves the other. Threads are those of the benchmark, on both sides.
"""

from __future__ import annotations

import multiprocessing
import pickle
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.plain_neumf import PlainNeuMFTraining
from benchmarks.plain_vae import PlainVAETraining
from foretaste.bench.measure import PeakMemory, load_libraries, timed
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
    """Samples or users it takes at once; tried out unless given."""
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

    Raises what the loop raises, and TrainingError where its process ends before its time.
    """

    def __init__(self, case: PlainCase) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, case), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.chunk: int
            self.epochs: Epochs
            self.chunk, self.epochs = self._answer()
        except BaseException:
            self.close()
            raise

    def train_epoch(self, is_warmup: bool) -> None:
        """Have one more epoch trained, and count it in ``epochs``."""
        seconds, memory = self._answer(ask=True)
        self.epochs.add(seconds, is_warmup, memory)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()

    def _answer(self, *, ask: bool = False) -> Any:
        try:
            if ask:
                self._pipe.send(None)
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise TrainingError(self._why_ended()) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _why_ended(self) -> str:
        code = self._process.exitcode
        if code is not None and code < 0:
            return (
                f"the process of the plain loop was killed (signal {-code}), often for want of "
                "memory; choose a smaller --shape"
            )
        return (
            f"the process of the plain loop ended with exit code {code}, for what it says above; "
            'a script that runs benchmarks does so below if __name__ == "__main__":'
        )


def _serve(pipe: Connection, case: PlainCase) -> None:
    """Build, then train an epoch for each message, until the other end is closed."""
    torch.set_num_threads(case.num_threads)
    try:
        device = torch.device(case.plan.device)
        load_libraries(device)
        memory = PeakMemory(device)
        built: list[PlainTraining] = []
        build_s = timed(lambda: built.append(case.build()), device)
        (training,) = built
        pipe.send((training.chunk, Epochs(training.num_samples, build_s=build_s)))
        with suppress(EOFError):
            while True:
                pipe.recv()
                seconds = training.epoch()
                pipe.send((seconds, memory.as_numbers()))
    except Exception as error:
        try:
            pipe.send(error)
        except (pickle.PicklingError, TypeError, AttributeError):
            pipe.send(TrainingError(f"the plain loop failed: {error!r}"))
    except KeyboardInterrupt:
        pass

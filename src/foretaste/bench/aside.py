"""The plain loop in a process of its own, as those who write such loops run them.

How our training has the C library keep memory does not reach it, and neither side's freed memory
serves the other. Threads are those of the benchmark, on both sides.
"""

from __future__ import annotations

import multiprocessing
import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import torch

from foretaste.bench.measure import timed
from foretaste.bench.memory import PeakMemory, load_libraries
from foretaste.bench.plain_neumf import PlainNeuMFTraining
from foretaste.bench.plain_vae import PlainVAETraining
from foretaste.errors import TrainingError
from foretaste.evaluation.ranking import to_device
from foretaste.models.neumf.config import NeuMFConfig

if TYPE_CHECKING:
    from foretaste.bench.subject import Subject
    from foretaste.data.histories import Histories
    from foretaste.training.resolve import TrainingPlan

PlainTraining = PlainNeuMFTraining | PlainVAETraining


@dataclass(frozen=True)
class PlainCase:
    """What the plain loop is to train."""

    subject: Subject
    histories: Histories
    plan: TrainingPlan
    precision: str
    chunk: int | None
    """What it takes at once; tried out unless given."""
    num_threads: int

    def build(self) -> PlainTraining:
        """The loop with its model, optimizer and data on the device."""
        config, sampling = self.subject.model, self.subject.sampling
        histories = to_device(self.histories, torch.device(self.plan.device))
        arguments: dict[str, Any] = {"chunk": self.chunk, "precision": self.precision}
        if isinstance(config, NeuMFConfig):
            assert sampling is not None
            return PlainNeuMFTraining(config, sampling, histories, self.plan, **arguments)
        return PlainVAETraining(config, histories, self.plan, **arguments)


@dataclass(frozen=True)
class Built:
    """What is known of the plain loop before its first epoch."""

    build_s: float
    chunk: int


@dataclass(frozen=True)
class Epoch:
    """An epoch of the plain loop."""

    seconds: float
    peak_memory_mib: float | None
    """From before the loop was built; None where it is not known."""
    memory_is: str


class PlainProcess:
    """The plain loop of ``case``, an epoch at a time when asked for one; ends with its maker.

    ``built`` tells how that went. Raises what the loop raises, and TrainingError where its process
    ends before its time.
    """

    def __init__(self, case: PlainCase) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, case), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.built: Built = self._answer()
        except BaseException:
            self.close()
            raise

    def epoch(self) -> Epoch:
        """Have one more epoch trained."""
        epoch: Epoch = self._answer(ask=True)
        return epoch

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
        made: list[PlainTraining] = []
        build_s = timed(lambda: made.append(case.build()), device)
        (training,) = made
        pipe.send(Built(build_s, training.chunk))
        while _is_asked(pipe):
            seconds = training.epoch()
            pipe.send(Epoch(seconds, memory.rise_mib(), memory.meaning))
    except Exception as error:
        try:
            pipe.send(error)
        except (pickle.PicklingError, TypeError, AttributeError):
            pipe.send(TrainingError(f"the plain loop failed: {error!r}"))
    except KeyboardInterrupt:
        pass


def _is_asked(pipe: Connection) -> bool:
    """Whether another epoch is asked for."""
    try:
        pipe.recv()
    except EOFError:
        return False
    return True

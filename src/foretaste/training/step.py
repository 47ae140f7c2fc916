"""One update of the weights: forward, backward, optimizer; on a GPU recorded once and replayed."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.models.base import NeuralModel
from foretaste.ops.spans import span
from foretaste.ops.triton import support as triton_support
from foretaste.training.batches import Batch, Batches
from foretaste.training.precision import PrecisionPolicy

_STEPS_BEFORE_RECORDING = 3


def check_compiler(device: torch.device) -> None:
    """UnsupportedError where torch.compile would not find what it needs."""
    compilers = (os.environ.get("CXX"), "g++", "clang++", "cl")
    if device.type == "cpu" and not any(name and shutil.which(name) for name in compilers):
        raise UnsupportedError(
            "compile is on, but torch.compile needs a C++ compiler on a CPU and found none; "
            "install g++ or clang++, or leave out --compile"
        )
    if device.type == "cuda" and not triton_support.is_installed():
        raise UnsupportedError(
            "compile is on, but torch.compile needs Triton on a GPU and found none; "
            "pip install triton, or leave out --compile"
        )


class Step:
    """Updates ``model`` by one batch at a time; holds all that changes from update to update."""

    def __init__(
        self, model: NeuralModel, optimizer: torch.optim.Optimizer, precision: PrecisionPolicy
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.scaler = precision.scaler()

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of the batch, on the device, as it was before the update.

        Good until the next call: a replayed step writes it over.
        """
        loss = self._add_gradients(batch)
        with span("step"):
            self.scaler.step(self.optimizer)
        return loss

    @property
    def begins_cold(self) -> bool:
        """Whether its first epoch takes longer, since kernels are compiled as they are met."""
        return self.model.device.type == "cuda"

    def state_dict(self) -> dict[str, Tensor]:
        """All that changes from update to update, by name; resuming needs it."""
        state = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for kind, value in self.optimizer.state.get(parameter, {}).items():
                state[f"optimizer.{kind}.{name}"] = value
        return state | {f"scaler.{n}": value for n, value in self.scaler.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state_dict`; before the first call only."""
        self.model.load_state_dict(_under("model", state))
        self.scaler.load_state_dict(_under("scaler", state))
        parameters = dict(self.model.named_parameters())
        for key, value in _under("optimizer", state).items():
            kind, _, name = key.partition(".")
            parameter = parameters[name]
            self.optimizer.state[parameter][kind] = value.to(parameter.device, copy=True)

    def compile(self, batches: Batches) -> float:
        """Compile what a step compiles, without an update; returns the seconds it took.

        That is kernels on a GPU, and with `NeuralModel.compiled` the loss; else nothing.
        """
        if not self.model.compiled and self.model.device.type != "cuda":
            return 0.0
        batch = next(iter(batches.epoch(0)))
        since = time.perf_counter()
        self._add_gradients(batch)
        self.optimizer.zero_grad(set_to_none=True)
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        return time.perf_counter() - since

    def _add_gradients(self, batch: Batch) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.products():
            with span("forward"):
                loss: Tensor = self.model(batch)
            with span("backward"):
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class Recorder(Protocol):
    """Runs work, or records it to be run again on the same memory."""

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """Do the work now."""
        ...

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What does the work as often as it is called; RuntimeError if it cannot be recorded."""
        ...


class CudaGraphRecorder:
    """The `Recorder` of CUDA: work runs on a stream of its own, as recording wants it."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        caller = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(caller)
        with torch.cuda.stream(self.stream):
            result = work()
        caller.wait_stream(self.stream)
        return result

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            work()
        replay: Callable[[], None] = graph.replay
        return replay


class RecordedStep(Step):
    """The step of a full batch recorded once, then replayed without launching anew.

    What is replayed reads one batch's memory, so every batch is copied there first; batches of
    other shapes, such as an epoch's last, are worked on as they are. For models whose step does
    not wait for the device (`NeuralModel.waits_for_device`).

    Args:
        num_samples: of a full batch.
    """

    def __init__(
        self,
        model: NeuralModel,
        optimizer: torch.optim.Optimizer,
        precision: PrecisionPolicy,
        recorder: Recorder,
        num_samples: int,
    ) -> None:
        super().__init__(model, optimizer, precision)
        self.num_samples = num_samples
        self.recorder: Recorder | None = recorder
        self._num_seen: Counter[tuple[torch.Size, ...]] = Counter()
        self._batch: Batch | None = None
        self._replay: Callable[[], None] = lambda: None
        self._loss = torch.empty(0)

    @property
    def begins_cold(self) -> bool:
        return True

    def __call__(self, batch: Batch) -> Tensor:
        if self._batch is not None and _shapes(batch) == _shapes(self._batch):
            for static, given in zip(self._batch.tensors(), batch.tensors(), strict=True):
                static.copy_(given)
            with span("forward, backward, step"):
                self._replay()
            return self._loss
        work = partial(super().__call__, batch)
        loss = work() if self.recorder is None else self.recorder.run(work)
        if self._batch is None and batch.num_samples == self.num_samples:
            self._num_seen[_shapes(batch)] += 1
            if self._num_seen[_shapes(batch)] == _STEPS_BEFORE_RECORDING:
                self._record(batch)
        return loss

    def _record(self, batch: Batch) -> None:
        """Record the step of such a batch; where that fails, go on without and say so once."""
        if self.recorder is None:
            return
        static = batch.with_tensors(tuple(tensor.clone() for tensor in batch.tensors()))
        step = super().__call__

        def work() -> None:
            self._loss = step(static)

        try:
            self._replay = self.recorder.record(work)
            self._batch = static
        except RuntimeError as error:
            self.recorder = None
            reason = str(error).partition("\n")[0]
            warnings.warn(
                f"the training step could not be recorded as a CUDA graph ({reason}); "
                "training goes on without",
                RuntimeWarning,
                stacklevel=2,
            )


def _under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What ``state`` has under a prefix, without it."""
    dotted = f"{prefix}."
    return {name.removeprefix(dotted): v for name, v in state.items() if name.startswith(dotted)}


def _shapes(batch: Batch) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in batch.tensors())

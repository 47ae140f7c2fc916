"""The training step of an NVIDIA GPU: recorded once as a CUDA graph, then replayed."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor

from foretaste.models.base import NeuralModel
from foretaste.models.batches import Batch, TensorBatch
from foretaste.ops.spans import span
from foretaste.training.optimizer import GroupOptimizer, WeightAverage
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.step import Step

# Full batches of one shape before the step is recorded. Kernels are compiled by then, and Adam has
# made its moments.
_STEPS_BEFORE_RECORDING = 3


class CudaGraphRecorder:
    """Runs work, or records it to be run again on the same memory, on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """Do the work now."""
        caller = torch.cuda.current_stream(self.stream.device)
        # Streams run side by side: each waits for the work before it on the other.
        self.stream.wait_stream(caller)
        with torch.cuda.stream(self.stream):
            result = work()
        caller.wait_stream(self.stream)
        return result

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does the work at each call; RuntimeError if recording fails."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            work()
        replay: Callable[[], None] = graph.replay
        return replay


class RecordedStep(Step):
    """The step of a full batch recorded once, then replayed without launching its operations again.

    A replay reads the memory of one batch, so every batch is copied there first. Batches of other
    shapes, such as an epoch's last, take the ordinary step. Steps are replayed only if the first
    replay gives, to the bit, what the step itself gives. For models whose step does not wait for
    the device (`NeuralModel.waits_for_device`).

    Args: num_samples: the samples of a full batch.
    """

    def __init__(
        self,
        model: NeuralModel,
        optimizers: Sequence[GroupOptimizer],
        precision: PrecisionPolicy,
        average: WeightAverage | None = None,
        *,
        recorder: CudaGraphRecorder,
        num_samples: int,
    ) -> None:
        super().__init__(model, optimizers, precision, average)
        self.num_samples = num_samples
        self.recorder: CudaGraphRecorder | None = recorder
        self._num_seen: Counter[tuple[torch.Size, ...]] = Counter()
        self._batch: TensorBatch | None = None
        self._replay: Callable[[], None] = lambda: None
        self._is_checked = False
        self._loss = torch.empty(0)

    def __call__(self, batch: Batch) -> Tensor:
        batch = cast(TensorBatch, batch)
        work = partial(super().__call__, batch)
        is_full = batch.num_samples == self.num_samples
        if self._batch is not None and is_full and _shapes(batch) == _shapes(self._batch):
            if not self._is_checked:
                return self._check_replay(batch, self._batch, work)
            return self._run_recorded(batch, self._batch)
        loss = work() if self.recorder is None else self.recorder.run(work)
        if self._batch is None and is_full:
            self._num_seen[_shapes(batch)] += 1
            if self._num_seen[_shapes(batch)] == _STEPS_BEFORE_RECORDING:
                self._record(batch)
        return loss

    def _run_recorded(self, batch: TensorBatch, recorded: TensorBatch) -> Tensor:
        # The graph has the addresses of the recorded batch and no others.
        for static, given in zip(recorded.tensors(), batch.tensors(), strict=True):
            static.copy_(given)
        with span("forward, backward, step"):
            self._replay()
        return self._loss

    def _check_replay(
        self, batch: TensorBatch, recorded: TensorBatch, work: Callable[[], Tensor]
    ) -> Tensor:
        """Update by the step itself and, from the same state, by replay.

        If they differ, the step's result is kept, and nothing is replayed later.
        """
        # This batch differs from the recorded one, so this check finds a number that the recording
        # took from the host and would repeat for ever.
        before = self._snapshot()
        # Clone the loss, because the replay may overwrite it.
        loss = work().clone()
        after = self._snapshot()
        self._restore(before)
        del before
        replayed_loss = self._run_recorded(batch, recorded)
        self._is_checked = torch.equal(replayed_loss, loss) and all(
            torch.equal(value.to("cpu"), after[name]) for name, value in self.state_dict().items()
        )
        if self._is_checked:
            return replayed_loss
        self._restore(after)
        self._give_up("its first replay gave other numbers than the step itself")
        return loss

    def _snapshot(self) -> dict[str, Tensor]:
        """Return all that changes from update to update, on the host, which has more memory."""
        return {name: value.to("cpu", copy=True) for name, value in self.state_dict().items()}

    @torch.no_grad()
    def _restore(self, snapshot: dict[str, Tensor]) -> None:
        """Write a snapshot back, in place: the recorded graph reads and writes this very memory."""
        for name, value in self.state_dict().items():
            value.copy_(snapshot[name])

    def _give_up(self, reason: str) -> None:
        """Continue without a graph, and warn."""
        self.recorder, self._batch = None, None
        warnings.warn(
            f"the training step could not be recorded as a CUDA graph ({reason}); "
            "training continues without",
            RuntimeWarning,
            stacklevel=2,
        )

    def _record(self, batch: TensorBatch) -> None:
        """Record the step of a batch of this shape."""
        if self.recorder is None:
            return
        # Copy the batch: every replay reads this memory, and the batch's own memory is reused.
        static = batch.with_tensors(tuple(tensor.clone() for tensor in batch.tensors()))
        step = super().__call__

        def work() -> None:
            self._loss = step(static)

        try:
            self._replay = self.recorder.record(work)
            self._batch = static
        except RuntimeError as error:
            self._give_up(str(error).partition("\n")[0])


def _shapes(batch: TensorBatch) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in batch.tensors())

"""One update of the weights: forward, backward, and a step of the optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from foretaste.models.base import IterativeModel, NeuralModel, SweepModel
from foretaste.models.batches import Batch, Batches, WholeData
from foretaste.ops.spans import span
from foretaste.ops.triton.checks import verify_kernels
from foretaste.training.auto import TrainingPlan
from foretaste.training.optimizer import (
    GroupOptimizer,
    WeightAverage,
    average_of,
    optimizers_of,
    parameters_of,
)
from foretaste.training.precision import PrecisionPolicy


class Step:
    """Updates ``model`` by one batch at a time; holds all that changes from update to update.

    An update is complete after `finish`.

    Args: average: the average of the weights, which is evaluated and kept in their place.
    """

    def __init__(
        self,
        model: IterativeModel,
        optimizers: Sequence[GroupOptimizer],
        precision: PrecisionPolicy,
        average: WeightAverage | None = None,
    ) -> None:
        self.model = model
        self.average = average
        self.optimizers = optimizers
        self.precision = precision
        self.scaler = precision.scaler()

    def __call__(self, batch: Batch) -> Tensor:
        """Return the loss of the batch, on the device, as it was before the update.

        It is valid until the next call: a replayed step overwrites it.
        """
        assert isinstance(self.model, NeuralModel)
        # With several ranks, the previous update may still be running, and the loss reads the
        # parameters that it writes.
        self.finish()
        loss = self._add_gradients(batch)
        group = self.model.updated_by(batch)
        updating = [one for one in self.optimizers if group is None or one.group == group]
        with span("step"):
            self._update(batch, updating)
        return loss

    def _update(self, batch: Batch, updating: Sequence[GroupOptimizer]) -> None:
        self.scaler.step([one.optimizer for one in updating])
        self._add_to_average()

    def adjust(self, settings: Mapping[str, float]) -> None:
        """Set the ``learning_rate`` of the updates that follow, if a schedule gives one."""
        if not settings:
            return
        # With several ranks, the previous update may still be running, with the earlier rate.
        self.finish()
        for one in self.optimizers:
            for group in one.optimizer.param_groups:
                # In place: a recorded step reads this very tensor.
                group["lr"].fill_(settings["learning_rate"])

    def finish(self) -> None:
        """Complete the running update."""

    def use_evaluated_weights(self) -> AbstractContextManager[None]:
        """Give the model, for a block, the weights that are evaluated: averages if requested."""
        return nullcontext() if self.average is None else self.average.applied()

    def _add_to_average(self) -> None:
        if self.average is not None:
            self.average.update()

    @property
    def begins_cold(self) -> bool:
        """Whether the first epoch takes longer, because kernels are compiled on first use."""
        return self.model.device.type == "cuda"

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that changes from update to update, by name; resuming needs it."""
        self.finish()
        state = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if isinstance(self.model, NeuralModel):
            state |= {f"kept.{name}": value for name, value in self.model.frozen_encoder.items()}
        # Adam's moments go by the names of parameters: which optimizer has a parameter depends on
        # whether there are several ranks, and a state may be read by another number of them.
        for name, parameter in self.model.named_parameters():
            for one in self.optimizers:
                for kind, value in one.optimizer.state.get(parameter, {}).items():
                    state[f"optimizer.{kind}.{name}"] = value
        if self.average is not None:
            state |= {f"average.{n}": value for n, value in self.average.state_dict().items()}
        return state | {f"scaler.{n}": value for n, value in self.scaler.state_dict().items()}

    def rows_of(self, name: str) -> range | None:
        """Return the rows of an entry of a `state_dict` that are here; None for all."""
        owner, _, parameter = name.partition(".")
        if owner == "optimizer":
            parameter = parameter.partition(".")[2]
        return self.model.rows_of(parameter)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a `state_dict`; before the first call only."""
        self.model.load_state_dict(_strip_prefix("model", state))
        self.scaler.load_state_dict(_strip_prefix("scaler", state))
        if self.average is not None:
            self.average.load_state_dict(_strip_prefix("average", state))
        if isinstance(self.model, NeuralModel):
            device, frozen = self.model.device, _strip_prefix("kept", state)
            self.model.frozen_encoder = {
                n: value.to(device, copy=True) for n, value in frozen.items()
            }
        parameters = dict(self.model.named_parameters())
        optimizer_of = {
            parameter: one.optimizer
            for one in self.optimizers
            for parameter in parameters_of([one.optimizer])
        }
        for key, value in _strip_prefix("optimizer", state).items():
            kind, _, name = key.partition(".")
            parameter = parameters[name]
            moment = value.to(parameter.device, copy=True)
            optimizer_of[parameter].state[parameter][kind] = moment

    def compile(self, batches: Batches) -> float:
        """Compile the kernels of a step on a GPU, without an update; returns the seconds."""
        if not self.begins_cold:
            return 0.0
        assert isinstance(self.model, NeuralModel)
        batch, frozen = next(iter(batches.epoch(0))), self.model.frozen_encoder
        since = time.perf_counter()
        self._add_gradients(batch)
        self.model.zero_grad(set_to_none=True)
        # An epoch's first batch replaces it, and the epoch may be half done.
        self.model.frozen_encoder = frozen
        torch.cuda.synchronize(self.model.device)
        return time.perf_counter() - since

    def _add_gradients(self, batch: Batch) -> Tensor:
        # With None, backward hands over its gradients; with zeros it would add them, in one more
        # pass over all tables.
        self.model.zero_grad(set_to_none=True)
        with self.precision.products():
            with span("forward"):
                # The model is called, because it may be wrapped: a method of the unwrapped one
                # would leave the gradients of ranks unsynchronised without an error.
                loss: Tensor = self.model(batch)
            with span("backward"):
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        # An attached loss in a running total would keep a node of every batch of the epoch.
        return loss.detach()


class SweepStep(Step):
    """Updates a `SweepModel` by one sweep over the data."""

    def __call__(self, batch: Batch) -> Tensor:
        assert isinstance(self.model, SweepModel)
        assert isinstance(batch, WholeData)
        with self.precision.products():
            return self.model.sweep(batch)

    def compile(self, batches: Batches) -> float:
        return 0.0


def make_step(
    model: IterativeModel, plan: TrainingPlan, neural: Callable[..., Step] = Step
) -> Step:
    """Give ``model`` its first weights and the dtype of its products; returns its step.

    ``neural`` makes the step of a `NeuralModel`.
    """
    precision = PrecisionPolicy(
        precision=plan.precision, device=model.device, loss_scale=plan.loss_scale
    )
    model.reset_parameters(plan.seed)
    if not isinstance(model, NeuralModel):
        return SweepStep(model, (), precision)
    model.compute_dtype = precision.compute_dtype
    model.implementation = plan.kernels
    if model.implementation == "triton":
        verify_kernels(model.kernel_dtypes(), model.device, precision.float32)
    optimizers, average = optimizers_of(model, plan), average_of(model, plan)
    return neural(model, optimizers, precision, average)


def is_recorded(model: IterativeModel, plan: TrainingPlan, num_samples: int) -> bool:
    """Return True if the step of a full batch, of ``num_samples``, becomes a CUDA graph."""
    if not (plan.cuda_graphs and model.device.type == "cuda" and isinstance(model, NeuralModel)):
        return False
    # With several optimizers, equal shapes may be steps of different ones.
    return len(model.parameter_groups()) == 1 and not model.waits_for_device(
        num_samples, plan.kernels
    )


def _strip_prefix(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entries of ``state`` under a prefix, named without it."""
    dotted = f"{prefix}."
    return {name.removeprefix(dotted): v for name, v in state.items() if name.startswith(dotted)}

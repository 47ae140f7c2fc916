"""Adam for each group of parameters, the loss scale before it, and the average of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foretaste.errors import TrainingError
from foretaste.models.base import NeuralModel
from foretaste.ops.torch_internals import Adam
from foretaste.training.auto import TrainingPlan

_INITIAL_SCALE = 2.0**16
_SMALLEST_SCALE = 1.0
_LARGEST_SCALE = 2.0**32
GROWTH_STEPS = 2000
_LAG = 9
"""Updates after which an average keeps half of itself."""


class GroupOptimizer(NamedTuple):
    """The optimizer of parameters of one group of a model."""

    group: str
    """The group's name."""
    is_sharded: bool
    """Whether its parameters are tables of users, and the model has only some of their rows."""
    optimizer: torch.optim.Optimizer


def adam(parameters: Iterable[Tensor], plan: TrainingPlan) -> torch.optim.Optimizer:
    """Return the optimizer of a plan: Adam, each step in one fused pass."""
    rate: float | Tensor = plan.learning_rate
    if plan.learning_rate_schedule != "constant":
        rate = torch.tensor(rate, device=plan.device)  # which a recorded step reads again
    return Adam(
        parameters,
        lr=rate,
        betas=(plan.beta1, plan.beta2),
        eps=plan.eps,
        # An update of 31.8 million numbers took 6.8 ms fused and 82 ms otherwise, on two cores.
        fused=True,
        # The count of updates is a tensor on the GPU, so a recorded step counts too.
        capturable=plan.device.startswith("cuda"),
    )


def optimizers_of(model: NeuralModel, plan: TrainingPlan) -> list[GroupOptimizer]:
    """Return the optimizers of each of the model's groups of parameters.

    Tables with a part of the users have their own optimizer, which need not wait for the sums of
    gradients over the ranks.
    """
    of_part = {one for name, one in model.named_parameters() if model.rows_of(name) is not None}
    optimizers = []
    for group, parameters in model.parameter_groups().items():
        for is_of_part in (False, True):
            some = [one for one in parameters if (one in of_part) == is_of_part]
            if some:
                optimizers.append(GroupOptimizer(group, is_of_part, adam(some, plan)))
    return optimizers


def parameters_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """Return the parameters that the optimizers update, in their order."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return [parameter for group in groups for parameter in group["params"]]


class WeightAverage:
    """Exponential moving average of a model's weights, a term for each update.

    After n updates it keeps ``min(decay, n / (n + 9))`` of itself. So the weights before the first
    update do not count. In short trainings its mean age is a tenth of the updates, as in the power
    function average of Karras et al. 2024, arXiv 2312.02696, section 3.1.
    """

    def __init__(self, model: NeuralModel, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.num_updates = torch.zeros((), dtype=torch.int64, device=model.device)
        named = model.named_parameters()
        self.average = {name: torch.zeros_like(weight) for name, weight in named}

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average, without waiting for the device."""
        # n / (n + 9) is 0 at the first update, which replaces the zeros of the beginning.
        kept = (self.num_updates / (self.num_updates + _LAG)).clamp_(max=self.decay)
        # `kept` stays a tensor on the device: a number on the host would be a sync in each update.
        for name, weight in self.model.named_parameters():
            self.average[name].lerp_(weight, 1.0 - kept)
        self.num_updates.add_(1)  # in place, because a captured step needs it

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights while the block runs."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, weight in self.model.named_parameters():
            # The tensors change places: nothing is copied.
            weight.data, self.average[name] = self.average[name], weight.data
        self.model.clear_cache()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average by parameter, and its number of updates."""
        return {"num_updates": self.num_updates, **self.average}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a `state_dict`."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def average_of(model: NeuralModel, plan: TrainingPlan) -> WeightAverage | None:
    """Return the average that a plan asks for, or None."""
    return WeightAverage(model, plan.ema) if plan.ema else None


class Scaler:
    """Between loss and optimizers: ``scale(loss).backward()``, then ``step(optimizers)``.

    This one scales nothing.
    """

    looks_at_gradients = False
    """Whether a step depends on all gradients at once."""

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss whose ``backward`` is called."""
        return loss

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Update the weights by the gradients of the scaled loss."""
        for optimizer in optimizers:
            optimizer.step()

    def as_event(self) -> dict[str, float]:
        """Return the scaler's entries of the metrics log; waits for the device."""
        return {}

    def check_updates(self, num_updates: int) -> None:
        """Raise TrainingError if the last ``num_updates`` changed no weight, and none will."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that resuming needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a `state_dict`."""
        assert not state, sorted(state)


class LossScaler(Scaler):
    """The `Scaler` of fp16, for fused Adam; nothing in a step waits for the device.

    A step whose gradients are not all finite leaves weights and optimizer state alone. The scale
    starts at 2**16. It is halved after such a step, and doubled after 2,000 finite steps in a row
    (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2); ``fixed`` keeps it where it is. If
    several ranks train together, all leave out a step that one leaves out: ``seen`` is the maximum
    of their findings.
    """

    looks_at_gradients = True

    def __init__(self, device: torch.device, fixed: float | None = None) -> None:
        self.seen: Callable[[Tensor], Tensor] = lambda found: found
        self.is_fixed = fixed is not None
        self.scale_tensor = torch.full((), fixed or _INITIAL_SCALE, device=device)
        self.num_finite = torch.zeros((), dtype=torch.int64, device=device)
        self.num_skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._num_skipped_before = 0

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.scale_tensor

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        gradients = [
            parameter.grad
            for parameter in parameters_of(optimizers)
            # The largest magnitude of nothing is an error: a rank may have no rows of a table.
            if parameter.grad is not None and parameter.numel()
        ]
        # The largest magnitude is infinite or nan if any gradient is: one number on the device.
        largest = torch.nn.utils.get_total_norm(gradients, norm_type=math.inf)
        found_inf = self.seen((~largest.isfinite()).float())
        overflowed = found_inf.bool()
        for optimizer in optimizers:
            fused: Any = optimizer
            # These attributes are PyTorch's contract with its own GradScaler
            # (torch/amp/grad_scaler.py): a fused optimizer divides by ``grad_scale`` and skips the
            # step if ``found_inf`` is set, without a sync.
            fused.grad_scale, fused.found_inf = self.scale_tensor, found_inf
            try:
                optimizer.step()
            finally:
                del fused.grad_scale, fused.found_inf
        # In place, so that a captured step keeps working on the same tensors.
        self.num_skipped.add_(overflowed)
        if self.is_fixed:
            return
        self.num_finite.add_(1).mul_(~overflowed)
        grows = self.num_finite == GROWTH_STEPS
        # Times a half after an overflow, times two if it grows, else times one: the host waits for
        # no branch.
        self.scale_tensor.mul_(1.0 - 0.5 * overflowed.float() + grows.float())
        self.scale_tensor.clamp_(min=_SMALLEST_SCALE, max=_LARGEST_SCALE)
        self.num_finite.mul_(~grows)

    def check_updates(self, num_updates: int) -> None:
        num_skipped = int(self.num_skipped.item())
        all_skipped = num_skipped - self._num_skipped_before >= num_updates
        if all_skipped and (self.is_fixed or self.scale_tensor.item() <= _SMALLEST_SCALE):
            raise TrainingError(
                f"no gradient of the last {num_updates} updates was finite in fp16 at loss scale "
                f"{self.scale_tensor.item():g}; use --precision bf16 or fp32"
            )
        self._num_skipped_before = num_skipped

    def as_event(self) -> dict[str, float]:
        return {
            "loss_scale": self.scale_tensor.item(),
            "num_skipped_steps": int(self.num_skipped.item()),
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "loss_scale": self.scale_tensor,
            "num_finite": self.num_finite,
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])
        self._num_skipped_before = int(self.num_skipped.item())

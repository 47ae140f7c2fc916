"""A scaled loss gives the updates of an unscaled one, and skips values that are not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from foretaste.errors import TrainingError
from foretaste.training import optimizer as module
from foretaste.training.optimizer import LossScaler, Scaler
from tests.messages import raises
from tests.training.plans import make_plan

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _fast_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_STEPS", 3)


def adam(*values: float, lr: float = 0.1) -> tuple[nn.Parameter, torch.optim.Adam]:
    weight = nn.Parameter(torch.tensor(values))
    return weight, torch.optim.Adam([weight], lr=lr, fused=True)


def test_an_update_follows_the_plan() -> None:
    """Adam's first update is ``learning_rate * gradient / (abs(gradient) + eps)``."""
    weight = nn.Parameter(torch.tensor([[1.0, -2.0]]))
    optimizer = module.adam([weight], make_plan(learning_rate=0.5, eps=3.0))
    weight.grad = torch.tensor([[1.0, -6.0]])
    optimizer.step()
    expected = torch.tensor([[1.0 - 0.5 * 1.0 / 4.0, -2.0 + 0.5 * 6.0 / 9.0]])
    torch.testing.assert_close(weight.detach(), expected)


def train_step(
    scaler: Scaler,
    weight: nn.Parameter,
    optimizer: torch.optim.Optimizer,
    factor: float = 1.0,
) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss = scaler.scale(factor * weight.square().sum())
    loss.backward()
    scaler.step([optimizer])


@pytest.mark.parametrize("fixed", [None, 128.0])
def test_scaling_changes_no_update(fixed: float | None, device: torch.device) -> None:
    """Powers of two are exact, so the weights are equal bit for bit."""
    weights = []
    for scaler in (LossScaler(device, fixed), Scaler()):
        weight = nn.Parameter(torch.tensor([1.0, -0.3, 7e-3], device=device))
        optimizer = torch.optim.Adam([weight], lr=0.1, fused=True)
        for _ in range(7):
            train_step(scaler, weight, optimizer)
        weights.append(weight.detach())
    assert torch.equal(*weights)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_overflow_skips_the_step_and_halves_the_scale(bad: float) -> None:
    weight, optimizer = adam(1.0, 2.0)
    scaler = LossScaler(CPU)
    train_step(scaler, weight, optimizer)
    kept = weight.detach().clone(), optimizer.state[weight]["exp_avg"].clone()
    train_step(scaler, weight, optimizer, bad)
    assert torch.equal(weight, kept[0])
    assert torch.equal(optimizer.state[weight]["exp_avg"], kept[1])
    assert optimizer.state[weight]["step"] == 1
    assert scaler.as_event() == {"loss_scale": 2.0**15, "num_skipped_steps": 1}
    train_step(scaler, weight, optimizer)
    assert not torch.equal(weight, kept[0])


def test_the_scale_grows_after_finite_steps_in_a_row() -> None:
    weight, optimizer = adam(1.0)
    scaler, scales = LossScaler(CPU), []
    for factor in (1.0, 1.0, float("nan"), 1.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        train_step(scaler, weight, optimizer, factor)
        scales.append(scaler.scale_tensor.item() / 2**15)
    assert scales == [2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 4.0]


def test_the_scale_has_a_ceiling() -> None:
    weight, optimizer = adam(1.0, lr=1e-3)
    scaler = LossScaler(CPU)
    scaler.scale_tensor.fill_(2.0**32)
    for _ in range(4):
        train_step(scaler, weight, optimizer)
    assert scaler.scale_tensor.item() == 2.0**32


def test_a_fixed_scale_stays_and_overflows_are_skipped_all_the_same() -> None:
    weight, optimizer = adam(1.0)
    scaler = LossScaler(CPU, 128.0)
    for factor in (1.0, float("inf"), 1.0, 1.0, 1.0, 1.0):
        train_step(scaler, weight, optimizer, factor)
    assert scaler.as_event() == {"loss_scale": 128.0, "num_skipped_steps": 1}
    assert optimizer.state[weight]["step"] == 5


def test_a_resumed_scaler_equals_one_that_never_stopped() -> None:
    factors = [1.0, float("nan"), 1.0, 1.0, 1.0, 1.0]
    weight, optimizer = adam(1.0)
    whole = LossScaler(CPU)
    for factor in factors[:3]:
        train_step(whole, weight, optimizer, factor)
    resumed = LossScaler(CPU)
    resumed.load_state_dict({name: value.clone() for name, value in whole.state_dict().items()})
    for factor in factors[3:]:
        train_step(whole, weight, optimizer, factor)
        train_step(resumed, weight, optimizer, factor)
    assert resumed.as_event() == whole.as_event()
    Scaler().load_state_dict(Scaler().state_dict())


def test_weights_without_gradient_are_left_alone() -> None:
    weight, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight, unused], lr=0.1, fused=True)
    train_step(LossScaler(CPU), weight, optimizer)
    assert torch.equal(unused, torch.ones(2))
    assert not torch.equal(weight, torch.ones(2))


def test_the_scale_never_reaches_zero() -> None:
    weight, optimizer = adam(1.0)
    scaler = LossScaler(CPU)
    for _ in range(60):
        train_step(scaler, weight, optimizer, math.inf)
    assert scaler.as_event()["loss_scale"] == 1.0
    train_step(scaler, weight, optimizer)
    assert weight.isfinite().all()


def test_an_epoch_without_any_update_is_an_error() -> None:
    """The error does not come while the scale still adapts, or if one update counted."""
    weight, optimizer = adam(1.0)
    scaler = LossScaler(CPU)
    for _ in range(2):
        for _ in range(5):
            train_step(scaler, weight, optimizer, math.inf)
        scaler.check_updates(5)
    for _ in range(10):
        train_step(scaler, weight, optimizer, math.inf)
    train_step(scaler, weight, optimizer)
    scaler.check_updates(11)
    for _ in range(4):
        train_step(scaler, weight, optimizer, math.inf)
    with raises(TrainingError, 4, "fp16", 1, "--precision"):
        scaler.check_updates(4)

"""The update of the weights, run directly and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.errors import UnsupportedError
from foretaste.models.base import Implementation, NeuralModel
from foretaste.models.batches import Batches
from foretaste.models.neumf.batches import InteractionBatches
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.registry import build_model
from foretaste.models.vae.autoencoder import HistoryAutoencoder
from foretaste.models.vae.batches import HistoryBatches
from foretaste.models.vae.config import DAEConfig, RecVAEConfig, VAEConfig
from foretaste.models.vae.recvae import RecVAE
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.triton import checks
from foretaste.training.config import Precision
from foretaste.training.cuda_graph import RecordedStep
from foretaste.training.optimizer import GroupOptimizer, adam, average_of
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.step import Step, is_recorded
from foretaste.training.strategy import ALONE
from tests.messages import raises, says
from tests.ops.cases import random_histories
from tests.training.plans import make_plan

CPU = torch.device("cpu")
NUM_USERS, NUM_ITEMS = 30, 40
CONFIGS: dict[str, Any] = {
    "neumf": NeuMFConfig(factors=4, layers=(8, 6)),
    "gmf": GMFConfig(factors=4, loss="bce"),
    "vae": VAEConfig(hidden=(12,), latent=4, anneal_steps=5, anneal_cap=0.9),
    "dae": DAEConfig(hidden=(12,), latent=4),
}


@dataclass
class Rerunner:
    """A recorder for any device: a replay runs the recorded step again on the same memory."""

    num_run: int = 0
    num_replayed: int = 0
    refuses: bool = False
    spoils: Callable[[], None] | None = None
    """Called after each replay."""
    recorded: list[Callable[[], None]] = field(default_factory=list)

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        self.num_run += 1
        return work()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        if self.refuses:
            raise RuntimeError("operation not permitted when stream is capturing\nCUDA error")

        def replay() -> None:
            self.num_replayed += 1
            work()
            if self.spoils is not None:
                self.spoils()

        return replay


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    return random_histories(rng, NUM_USERS, NUM_ITEMS, share=0.3)


def make_model(name: str) -> NeuralModel:
    model = build_model(name, CONFIGS[name], NUM_USERS, NUM_ITEMS)
    assert isinstance(model, NeuralModel)
    model.reset_parameters(3)
    return model.train()


def batches_of(name: str, histories: HistoryTensors) -> Batches:
    if name in ("neumf", "gmf"):
        return InteractionBatches(histories, GMFConfig(negatives=4), 200, seed=3)
    return HistoryBatches(histories, 7, seed=3)


def losses(step: Step, batches: Batches, num_epochs: int = 3) -> list[float]:
    return [step(batch).item() for epoch in range(num_epochs) for batch in batches.epoch(epoch)]


def step_of(
    name: str,
    precision: str = "fp32",
    recorder: Rerunner | None = None,
    **plan: Any,
) -> Step:
    model = make_model(name)
    policy = PrecisionPolicy(precision=precision, device=CPU)
    model.compute_dtype = policy.compute_dtype
    made = make_plan(**plan)
    optimizers = [GroupOptimizer("all", True, adam(model.parameters(), made))]
    average = average_of(model, made)
    if recorder is None:
        return Step(model, optimizers, policy, average)
    num_samples = 200 if name in ("neumf", "gmf") else 7
    return RecordedStep(
        model, optimizers, policy, average, recorder=recorder, num_samples=num_samples
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_recorded_step_learns_the_same(
    name: str, precision: str, histories: HistoryTensors
) -> None:
    recorder = Rerunner()
    batches = batches_of(name, histories)
    straight, recorded = step_of(name, precision), step_of(name, precision, recorder)
    assert losses(straight, batches) == losses(recorded, batches)
    for one, other in zip(straight.model.parameters(), recorded.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert recorder.num_run + recorder.num_replayed == 3 * batches.num_batches


def test_a_recorded_step_averages_the_same(histories: HistoryTensors) -> None:
    recorder, batches = Rerunner(), batches_of("gmf", histories)
    straight, recorded = step_of("gmf", ema=0.9), step_of("gmf", recorder=recorder, ema=0.9)
    assert losses(straight, batches) == losses(recorded, batches)
    assert recorder.num_replayed > 1
    found = recorded.state_dict()
    assert found["average.num_updates"] == 3 * batches.num_batches
    for name, value in straight.state_dict().items():
        assert torch.equal(found[name], value), name


def test_a_recorded_step_follows_the_learning_rate(histories: HistoryTensors) -> None:
    recorder, batches = Rerunner(), batches_of("gmf", histories)
    settings = {"learning_rate_schedule": "cosine"}
    steps = step_of("gmf", **settings), step_of("gmf", recorder=recorder, **settings)
    for rate in (0.02, 0.01, 0.001):
        found = []
        for step in steps:
            step.adjust({"learning_rate": rate})
            found.append(losses(step, batches, num_epochs=1))
        assert found[0] == found[1]
    assert recorder.num_replayed > 1
    before = [weight.detach().clone() for weight in steps[1].model.parameters()]
    steps[1].adjust({"learning_rate": 0.0})
    losses(steps[1], batches, num_epochs=1)
    for weight, one in zip(steps[1].model.parameters(), before, strict=True):
        assert torch.equal(weight, one)


def test_only_batches_of_one_shape_are_replayed(histories: HistoryTensors) -> None:
    recorder = Rerunner()
    step, batches = step_of("neumf", recorder=recorder), batches_of("neumf", histories)
    losses(step, batches, num_epochs=2)
    num_partial = 2
    assert batches.num_samples % 200 > 0
    assert recorder.num_run == 3 + num_partial
    assert recorder.num_replayed == 2 * batches.num_batches - 3 - num_partial


def test_a_short_batch_is_never_recorded(histories: HistoryTensors) -> None:
    """A short batch may come several times, for example after resuming at an epoch's last
    batches."""
    recorder = Rerunner()
    step, batches = step_of("gmf", recorder=recorder), batches_of("gmf", histories)
    *_, short = batches.epoch(0)
    for _ in range(5):
        step(short)
    assert (recorder.num_run, recorder.num_replayed) == (5, 0)


def test_a_part_of_a_short_batch_is_not_replayed(histories: HistoryTensors) -> None:
    """Its shape may equal a full batch's part, but its own batch's users normalise it."""
    recorder = Rerunner()
    step, batches = step_of("dae", recorder=recorder), batches_of("dae", histories)
    full = next(iter(batches.epoch(0)))
    for _ in range(5):
        step(full)
    assert (recorder.num_run, recorder.num_replayed) == (3, 2)
    short = replace(full, num_samples=6)
    expected = step.model(short).item()
    assert expected != step.model(full).item()
    assert step(short).item() == expected
    assert (recorder.num_run, recorder.num_replayed) == (4, 2)


def test_a_step_that_cannot_be_recorded_runs_unrecorded(histories: HistoryTensors) -> None:
    batches = batches_of("gmf", histories)
    step = step_of("gmf", recorder=Rerunner(refuses=True))
    with pytest.warns(RuntimeWarning) as warned:
        found = losses(step, batches)
    (warning,) = warned
    says(warning.message, "operation not permitted when stream is capturing")
    assert found == losses(step_of("gmf"), batches)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_replay_that_computes_something_else_is_not_used(
    precision: str, histories: HistoryTensors
) -> None:
    recorder = Rerunner()
    batches, step = batches_of("gmf", histories), step_of("gmf", precision, recorder)
    recorder.spoils = lambda: next(step.model.parameters()).data[0].add_(1e-3)
    with pytest.warns(RuntimeWarning) as warned:
        found = losses(step, batches)
    (warning,) = warned
    says(warning.message)
    assert recorder.num_replayed == 1
    straight = step_of("gmf", precision)
    assert found == losses(straight, batches)
    assert step.state_dict().keys() == straight.state_dict().keys()
    for name, value in straight.state_dict().items():
        assert torch.equal(step.state_dict()[name], value)


WITHOUT_VALUES: dict[str, Any] = CONFIGS | {
    "mlp": MLPConfig(layers=(8, 6)),
    "recvae": RecVAEConfig(latent=4),
}


@pytest.fixture
def _meta_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of a GPU for tensors of the device ``meta``, and no kernel to launch."""
    pytest.importorskip("triton")
    for name in ("embedding_bag", "neumf_loss", "segments", "softmax_loss"):
        module = import_module(f"foretaste.ops.triton.{name}")
        monkeypatch.setattr(module, "launch", lambda *given, **options: None)
    monkeypatch.setitem(LIMITS, "meta", LIMITS["cuda"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.mark.usefixtures("_meta_as_a_gpu")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("kernels", ["chunked", "triton"])
@pytest.mark.parametrize("name", WITHOUT_VALUES)
def test_a_step_waits_for_the_device_only_at_marked_lines(
    name: str, kernels: Implementation, precision: Precision, histories: HistoryTensors
) -> None:
    """Tensors of ``meta`` have no values, so code that reads a value, or a shape made of values,
    fails; otherwise the step is a GPU's."""
    model = build_model(name, WITHOUT_VALUES[name], NUM_USERS, NUM_ITEMS)
    assert isinstance(model, NeuralModel)
    size = 7 if isinstance(model, HistoryAutoencoder) else 200
    meta = torch.device("meta")
    # the flag of tf32 is CUDA's, and the scale of fp16's loss is a tensor
    device = torch.device("cuda") if precision == "tf32" else meta
    policy = PrecisionPolicy(precision=precision, device=device)
    model.compute_dtype, model.implementation = policy.compute_dtype, kernels
    waits = model.waits_for_device(size, kernels)
    batches = model.make_batches(histories, batch_size=size, seed=3, padded=not waits)
    batch = next(iter(batches.epoch(0)))
    step = Step(model.to(meta).train(), [], policy)
    fake = batch.with_tensors(tuple(tensor.to(meta) for tensor in batch.tensors()))
    if waits:
        with pytest.raises((RuntimeError, NotImplementedError), match=r"meta"):
            step._add_gradients(fake)
        return
    assert step._add_gradients(fake).shape == ()
    groups, updated = model.parameter_groups(), model.updated_by(fake)
    for parameter in groups[updated or "all"]:
        assert parameter.grad is not None
        assert parameter.grad.shape == parameter.shape


@pytest.mark.usefixtures("_meta_as_a_gpu")
@pytest.mark.parametrize("kernels", ["chunked", "triton"])
@pytest.mark.parametrize("name", WITHOUT_VALUES)
def test_batches_are_padded_for_recorded_steps_alone(
    name: str, kernels: Implementation, histories: HistoryTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(name, WITHOUT_VALUES[name], NUM_USERS, NUM_ITEMS)
    assert isinstance(model, NeuralModel)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    size = 7 if isinstance(model, HistoryAutoencoder) else 200
    plan = make_plan(kernels=kernels, batch_size=size)
    records = is_recorded(model, plan, size)
    assert records == (name in ("neumf", "gmf", "mlp") or (kernels, name) in RECORDED)
    made: list[bool] = []
    make = model.make_batches

    def noted(*given: Any, padded: bool, **more: Any) -> Batches:
        made.append(padded)
        return make(*given, padded=padded, **more)

    monkeypatch.setattr(model, "make_batches", noted)
    monkeypatch.setattr("foretaste.training.strategy.make_step", lambda *given: None)
    monkeypatch.setattr("foretaste.training.strategy.CudaGraphRecorder", lambda device: None)
    ALONE.batches_and_step(model, histories, plan)
    assert made == [records]


RECORDED = [("triton", "vae"), ("triton", "dae")]
"""Recorded autoencoders; RecVAE has two optimizers."""


def test_compiling_changes_nothing_of_a_saved_state(
    histories: HistoryTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RecVAE keeps the encoder of the epoch's start, and may resume in the middle of an epoch."""
    model = RecVAE(RecVAEConfig(latent=4), NUM_USERS, NUM_ITEMS).train()
    plan = make_plan(batch_size=7)
    batches, step = ALONE.batches_and_step(model, histories, plan)
    step(next(iter(batches.epoch(0))))
    before = {name: tensor.clone() for name, tensor in step.state_dict().items()}
    assert any(name.startswith("kept.") for name in before)
    monkeypatch.setattr(Step, "begins_cold", True)  # as on a GPU
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert step.compile(batches) > 0.0
    after = step.state_dict()
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


@pytest.mark.parametrize("name", CONFIGS)
def test_kernels_are_checked_before_the_first_step(
    name: str, histories: HistoryTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "kernel_error", lambda *of: "it does not run")
    model = make_model(name)
    plan = make_plan(kernels="triton", batch_size=7)
    with raises(UnsupportedError, "triton", "cpu", "float32", "it does not run"):
        ALONE.batches_and_step(model, histories, plan)

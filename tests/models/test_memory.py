"""A model's memory is checked before any part of the model is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from foretaste._util.system import Launch
from foretaste.errors import UnsupportedError
from foretaste.models.ials.config import IALSConfig
from foretaste.models.memory import check_model_fits
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.registry import (
    MODEL_NAMES,
    Definition,
    build_model,
    config_class,
    model_class,
)
from foretaste.models.vae.config import DAEConfig, RecVAEConfig, VAEConfig
from foretaste.models.vae.recvae import RecVAE
from tests.messages import raises

CPU = torch.device("cpu")
NEURAL = ("neumf", "gmf", "mlp", "vae", "dae", "recvae")


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_size_equals_the_built_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(name, config := config_class(name)(), 50, 30)
    assert model.weight_bytes() == sum(
        tensor.untyped_storage().nbytes() for tensor in (*model.parameters(), *model.buffers())
    )
    for free, to_train in (
        (model.weight_bytes(), False),
        (model.training_bytes(CPU), True),
    ):
        monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_, free=free: free)
        check_model_fits(Definition(name, config, 50, 30), CPU, to_train=to_train)
        monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_, free=free: free - 1)
        with raises(UnsupportedError, name, 50, 30, config):
            check_model_fits(Definition(name, config, 50, 30), CPU, to_train=to_train)


@pytest.mark.parametrize("size", [2**63 - 1, 2**62, 2**31])
@pytest.mark.parametrize(
    "make",
    [
        lambda size: VAEConfig(latent=size),
        lambda size: VAEConfig(hidden=(size,)),
        lambda size: DAEConfig(latent=size),
        lambda size: RecVAEConfig(latent=size),
        lambda size: RecVAEConfig(width=size),
        lambda size: GMFConfig(factors=size),
        lambda size: NeuMFConfig(factors=size),
        lambda size: MLPConfig(layers=(size // 2 * 2, 8)),
        lambda size: IALSConfig(factors=size),
    ],
)
@pytest.mark.parametrize("to_train", [False, True])
def test_no_size_is_too_large_to_be_checked(
    make: Callable[[int], Any], size: int, to_train: bool
) -> None:
    config = make(size)
    (name,) = [name for name in MODEL_NAMES if config_class(name) is type(config)]
    with raises(UnsupportedError, name, 50, 30, config):
        check_model_fits(Definition(name, config, 50, 30), CPU, to_train=to_train)


def test_processes_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that one process trains alone has all of the memory."""
    monkeypatch.setattr("foretaste.models.memory.launch", lambda: Launch(0, 8, 0, 8))
    needed = build_model("ease", config := config_class("ease")(), 50, 30).training_bytes(CPU)
    monkeypatch.setattr("foretaste.models.memory.free_bytes", lambda: 8 * needed - 1)
    check_model_fits(Definition("ease", config, 50, 30), CPU, to_train=True, num_processes=1)
    with raises(UnsupportedError, "ease", 50, 30, config, "--neighbors 100"):
        check_model_fits(Definition("ease", config, 50, 30), CPU, to_train=True)


@pytest.mark.parametrize("name", NEURAL)
def test_training_keeps_four_numbers_for_each_weight(name: str) -> None:
    model = build_model(name, config_class(name)(), 50, 30)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    moments = [
        tensor for state in optimizer.state.values() for tensor in state.values() if tensor.ndim
    ]
    kept = [*parameters, *(parameter.grad for parameter in parameters), *moments]
    if isinstance(model, RecVAE):  # the encoder of its prior
        encoder = [one for name, one in model.named_parameters() if not name.startswith("output")]
        kept += encoder
    num_bytes = sum(tensor.nbytes for tensor in kept if tensor is not None)
    assert model.training_bytes(CPU) == num_bytes + sum(each.nbytes for each in model.buffers())


def test_an_average_of_the_weights_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("gmf", config := config_class("gmf")(), 50, 30)
    free = model.training_bytes(CPU) + model.weight_bytes()
    monkeypatch.setattr("foretaste.models.memory.free_on", lambda *where: free - 1)
    check_model_fits(Definition("gmf", config, 50, 30), CPU, to_train=True)
    with raises(UnsupportedError, "gmf", 50, 30, config):
        check_model_fits(Definition("gmf", config, 50, 30), CPU, to_train=True, has_average=True)


def test_every_model_says_what_to_do_if_it_does_not_fit() -> None:
    assert all(model_class(name).memory_advice for name in MODEL_NAMES)

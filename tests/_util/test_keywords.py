"""Settings by name go to the config they belong to; one without a place says where it has one."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

from foretaste._util.keywords import routed
from foretaste.data import PrepareConfig
from foretaste.errors import SettingError
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.models.vae.config import VAEConfig
from foretaste.training import LogConfig, PretrainingConfig, TrainingConfig


def learn(*, verbose: bool = False, **settings: Any) -> None:
    """A function that takes settings by name."""


def route(settings: dict[str, Any], config: Any = None, model_config: Any = None) -> list[Any]:
    arguments = {
        "config": (TrainingConfig, config),
        "model_config": (VAEConfig, model_config),
        "preparation": (PrepareConfig, None),
    }
    return routed(learn, arguments, settings)


def test_each_config_gets_its_own() -> None:
    settings = {"epochs": 2, "latent": 5, "min_rating": 3.0, "learning_rate": 0.1}
    assert route(settings) == [
        TrainingConfig(epochs=2, learning_rate=0.1),
        VAEConfig(latent=5),
        PrepareConfig(min_rating=3.0),
    ]


def test_nothing_given_is_told_from_defaults() -> None:
    assert route({}) == [None, None, None]
    assert route({"latent": 200}) == [None, VAEConfig(), None]


def test_the_first_config_has_a_shared_name() -> None:
    assert route({"seed": 3}) == [TrainingConfig(seed=3), None, None]


def test_names_go_before_what_a_config_says() -> None:
    found = route({"latent": 5}, TrainingConfig(epochs=9), VAEConfig(latent=7, dropout=0.1))
    assert found == [TrainingConfig(epochs=9), VAEConfig(latent=5, dropout=0.1), None]


def test_unknown_names_go_before_wrong_values() -> None:
    with pytest.raises(SettingError, match="no setting 'colour' here"):
        route({"latent": 0, "colour": 1})
    with pytest.raises(SettingError, match="no setting 'colour' here"):
        route({"colour": 1}, model_config={"latent": 7})


def test_a_config_of_another_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model_config is .*; it must be VAEConfig\(\.\.\.\)"):
        route({"latent": 5}, model_config={"latent": 7})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("factors", "it belongs to GMFConfig, IALSConfig, NeuMFConfig and SASRecConfig"),
        ("epoch", "did you mean epochs?"),
        ("verbos", "did you mean verbose?"),
        ("colour", "it takes those of TrainingConfig, VAEConfig, PrepareConfig"),
    ],
)
def test_a_name_without_a_place_says_where_it_has_one(name: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        route({"epochs": 3, name: 1})
    assert str(caught.value).startswith(f"learn has no setting {name!r} here")
    assert str(caught.value).endswith(message)


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_the_only_name_that_configs_of_a_training_share_is_the_seed(model: str) -> None:
    """A name added to two configs must be listed here, and the rule for it documented."""
    kinds = [config_class(model), TrainingConfig, PretrainingConfig]
    kinds += [LogConfig, PrepareConfig]
    owners = Counter(name for kind in kinds for name in names_of(kind))
    assert {name for name, count in owners.items() if count > 1} == {"seed"}

"""Each setting by name goes to its config; the error for a misplaced one names the right call."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

from foretaste._util.keywords import assign_settings
from foretaste.data import PrepareConfig
from foretaste.errors import SettingError
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.models.vae.config import VAEConfig
from foretaste.training import LogConfig, PretrainingConfig, TrainingConfig
from tests.messages import Named, raises

PARTS: dict[str, type[Any]] = {
    "config": TrainingConfig,
    "model_config": VAEConfig,
    "preparation": PrepareConfig,
}


def assigned(**given: Any) -> dict[str, Any]:
    """The keywords of a verb that also takes ``verbose``, with its settings assigned."""
    return assign_settings("learn", given, ["verbose"], PARTS)


def test_each_config_gets_its_own() -> None:
    assert assigned(epochs=2, latent=5, min_rating=3.0, learning_rate=0.1, verbose=False) == {
        "verbose": False,
        "config": TrainingConfig(epochs=2, learning_rate=0.1),
        "model_config": VAEConfig(latent=5),
        "preparation": PrepareConfig(min_rating=3.0),
    }


def test_missing_settings_differ_from_given_defaults() -> None:
    assert assigned(verbose=None, config=None) == {}
    assert assigned(latent=200) == {"model_config": VAEConfig()}


def test_the_first_config_has_a_shared_name() -> None:
    assert assigned(seed=3) == {"config": TrainingConfig(seed=3)}


def test_settings_by_name_override_a_config() -> None:
    config, model_config = TrainingConfig(epochs=9), VAEConfig(latent=7, dropout=0.1)
    found = assigned(latent=5, config=config, model_config=model_config)
    assert found == {"config": config, "model_config": VAEConfig(latent=5, dropout=0.1)}


def test_unknown_names_are_reported_before_wrong_values() -> None:
    for wrong in ({"latent": 0}, {"model_config": {"latent": 7}}):
        with raises(SettingError, "colour"):
            assigned(colour=1, **wrong)


def test_a_config_of_another_kind_is_refused() -> None:
    with raises(SettingError, "model_config", {"latent": 7}, "VAEConfig"):
        assigned(latent=5, model_config={"latent": 7})


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("negatives", ("GMFConfig", "MLPConfig", "NeuMFConfig")),
        ("epoch", ("epochs",)),
        ("verbos", ("verbose",)),
        ("colour", ("TrainingConfig", "VAEConfig", "PrepareConfig")),
    ],
)
def test_the_error_for_a_misplaced_name_says_where_it_belongs(name: str, named: Named) -> None:
    with raises(SettingError, "learn", name, *named):
        assigned(**{"epochs": 3, name: 1})


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_the_only_name_that_configs_of_a_training_share_is_the_seed(model: str) -> None:
    """A name added to two configs must be listed here, and the rule for it documented."""
    kinds = [config_class(model), TrainingConfig, PretrainingConfig]
    kinds += [LogConfig, PrepareConfig]
    owners = Counter(name for kind in kinds for name in names_of(kind))
    assert {name for name, count in owners.items() if count > 1} == {"seed"}

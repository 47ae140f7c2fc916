"""Every setting changes what a training does."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foretaste.data import Dataset, prepare
from foretaste.models.ials.config import IALSConfig
from foretaste.models.linear.config import EaseConfig, ItemKNNConfig, RP3betaConfig, SlistConfig
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.popularity.config import PopularityConfig
from foretaste.models.registry import MODEL_NAMES
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.models.vae.config import DAEConfig, RecVAEConfig, VAEConfig
from foretaste.training import TrainingConfig, train
from tests.training.trainings import items_of, numbers_of, weights_of

TRAINING = TrainingConfig(
    epochs=3,
    batch_size=500,
    learning_rate=0.01,
    learning_rate_schedule="constant",
    ema=0.0,
    eval_every=1,
    patience=1,
    device="cpu",
    search=False,
)
BEFORE = {
    # The steps are too long to keep improving, so patience ends the training.
    "patience": replace(TRAINING, epochs=40, learning_rate=0.2),
    "learning_rate_schedule": replace(TRAINING, patience=0),
    "schedule_epochs": replace(TRAINING, patience=0, learning_rate_schedule="cosine"),
}
"""Settings that a change is compared with if `TRAINING` does not suit."""

TRAINING_CHANGES: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 30,
    "learning_rate": 0.02,
    "beta1": 0.5,
    "beta2": 0.9,
    "eps": 1e-2,
    "ema": 0.9,
    "learning_rate_schedule": "cosine",
    "schedule_epochs": 6,
    "seed": 2,
    "precision": "bf16",
    "eval_every": 2,
    "eval_after": 2,
    "warm_up_epochs": 1,
    "patience": 2,
    "target": 1e-6,
    "select_by": "hr@3",
    "validation_users": 20,
    "candidates": "sampled-5",
}

ELSEWHERE = {
    *(
        "device",
        "loss_scale",
        "checkpoint_every_s",
        "kernels",
        "cuda_graphs",
        "evaluation_batch",
        "search",
    ),
}
"""``device`` decides where, and must not decide what; its errors are tested with `train`.
``loss_scale`` belongs to fp16 and is tested with the precisions, ``checkpoint_every_s`` changes
no number and is tested with resuming, ``evaluation_batch`` with evaluations. ``kernels`` and
``cuda_graphs`` change no number but times and are tested with the step."""

WEIGHTS = {"ignore_weights": True}
FEATURES = {"feature_weight": 0.0, "feature_power": 1.0}
RIDGE = {**FEATURES, "new_item_factor": 5.0}
LOSSES: dict[str, Any] = {
    "loss": "softmax",
    "logit_adjustment": 0.5,
    "prior_weight": 9.0,
    "negatives": 3,
    "verified_negatives": False,
    "batch_layout": "shuffled",
}
NEEDED: dict[str, dict[str, Any]] = {
    "logit_adjustment": {"loss": "softmax"},
    "temperature": {"loss": "softmax"},
}
"""Settings that another setting needs beside it."""

MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "neumf": (
        NeuMFConfig(factors=4, layers=(8, 8, 4)),
        {"factors": 5, "layers": (8, 6, 4), "dropout": 0.2, **LOSSES},
    ),
    "gmf": (
        GMFConfig(factors=4, loss="bce"),
        {
            "factors": 5,
            **LOSSES,
            "temperature": 0.5,
        },
    ),
    "mlp": (MLPConfig(layers=(8, 8, 4)), {"layers": (8, 6, 4), "dropout": 0.2, **LOSSES}),
    "vae": (
        VAEConfig(hidden=(12,), latent=4),
        {
            "hidden": (12, 8),
            "latent": 5,
            "dropout": 0.2,
            "activation": "relu",
            "anneal_cap": 0.5,
            "anneal_steps": 2000,
            "anneal_epochs": 1000.0,
            "kl_weight": 0.5,
            "l2": 0.1,
            "sampled_softmax": 3,
        },
    ),
    "dae": (
        DAEConfig(hidden=(12,), latent=4),
        {
            "hidden": (12, 8),
            "latent": 5,
            "dropout": 0.2,
            "activation": "relu",
            "l2": 0.1,
            "sampled_softmax": 3,
        },
    ),
    "recvae": (
        RecVAEConfig(width=12, latent=4),
        {
            "width": 14,
            "latent": 5,
            "dropout": 0.2,
            "kl_weight": 0.1,
            "encoder_passes": 2,
            "sampled_softmax": 3,
        },
    ),
    "ials": (
        IALSConfig(factors=4, unobserved_weight=0.1, regularization=0.01),
        {
            "factors": 5,
            "unobserved_weight": "auto",
            "regularization": 0.1,
            **FEATURES,
            **WEIGHTS,
        },
    ),
    "ease": (
        EaseConfig(),
        {"l2": 10.0, "dropout": 0.1, "user_power": 0.4, "neighbors": 3, **RIDGE, **WEIGHTS},
    ),
    "slist": (
        SlistConfig(),
        {"recency": 0.2, "window": 2, "set_weight": 3.0, "l2": 10.0, "neighbors": 3, **RIDGE},
    ),
    "sasrec": (
        SASRecConfig(factors=8, max_length=6, dropout=0.1),
        {
            "factors": 10,
            "blocks": 1,
            "heads": 4,
            "max_length": 3,
            "dropout": 0.2,
            "sampled_softmax": 3,
            "feature_weight": 0.5,
        },
    ),
    "itemknn": (ItemKNNConfig(), {"neighbors": 2, "shrinkage": 0.0, "user_power": 0.0, **WEIGHTS}),
    "rp3beta": (
        RP3betaConfig(),
        {"neighbors": 2, "cut": "target", "alpha": 0.5, "beta": 0.9, **WEIGHTS},
    ),
    "popularity": (PopularityConfig(), {}),
}


Behaviour = tuple[str, list[dict[str, Any]]]
"""The weights' digest and every logged number but times."""


@dataclass(frozen=True)
class Trainings:
    """Trains on one dataset with weights of interactions and features of items."""

    dataset: Dataset
    root: Path
    known: dict[tuple[Any, ...], Behaviour] = field(default_factory=dict)

    def prefix_sum(self, name: str, model_config: Any, config: TrainingConfig) -> Behaviour:
        """The behaviour before each change, trained once."""
        key = (name, model_config, config)
        if key not in self.known:
            self.known[key] = self.behaviour(*key)
        return self.known[key]

    def behaviour(self, name: str, model_config: Any, config: TrainingConfig) -> Behaviour:
        run = train(
            name, self.dataset, model_config=model_config, config=config, runs_root=self.root
        )
        return hashlib.sha256(weights_of(run)).hexdigest(), numbers_of(run)


@pytest.fixture(scope="module")
def weighted(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    directory = tmp_path_factory.mktemp("data") / "weighted"
    return prepare(
        table,
        directory,
        protocol="leave-one-out",
        half_life="4w",
        items=items_of(table, (9_001, "a")),
        features=["kind"],
    )


@pytest.fixture(scope="module")
def trainings(weighted: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(weighted, tmp_path_factory.mktemp("runs"))


def test_unchanged_settings_behave_the_same(trainings: Trainings) -> None:
    """Otherwise the tests below would prove nothing."""
    given = ("neumf", MODELS["neumf"][0], TRAINING)
    assert trainings.behaviour(*given) == trainings.behaviour(*given)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("neumf", setting) for setting in TRAINING_CHANGES),
        # The others act in code that knows no family.
        *(("vae", setting) for setting in ("batch_size", "seed", "precision")),
    ],
)
def test_every_training_setting_matters(name: str, setting: str, trainings: Trainings) -> None:
    model_config, before = MODELS[name][0], BEFORE.get(setting, TRAINING)
    after = replace(before, **{setting: TRAINING_CHANGES[setting]})
    changed = trainings.behaviour(name, model_config, after)
    assert changed != trainings.prefix_sum(name, model_config, before)


@pytest.mark.parametrize(
    ("name", "setting"), [(name, setting) for name in MODELS for setting in MODELS[name][1]]
)
def test_every_model_setting_matters(name: str, setting: str, trainings: Trainings) -> None:
    config, changes = MODELS[name]
    config = replace(config, **NEEDED.get(setting, {}))
    config_changed = replace(config, **{setting: changes[setting]})
    # a batch of everyone has every item, and leaves nothing to sample
    batch_size = 8 if setting == "sampled_softmax" else TRAINING.batch_size
    training = replace(TRAINING, epochs=1, batch_size=batch_size)
    changed = trainings.behaviour(name, config_changed, training)
    assert changed != trainings.prefix_sum(name, config, training)


def test_no_setting_was_forgotten() -> None:
    assert names(TrainingConfig) == TRAINING_CHANGES.keys() | ELSEWHERE
    assert MODELS.keys() == set(MODEL_NAMES)
    for config, changes in MODELS.values():
        assert names(type(config)) == changes.keys()


def names(config: type[Any]) -> set[str]:
    return {item.name for item in fields(config)}

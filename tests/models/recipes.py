"""Recipes of the contract: each model's training, and each other way to make a model."""

from __future__ import annotations

from pathlib import Path

import foretaste
from foretaste.data import Dataset
from foretaste.models.ials.config import IALSConfig
from foretaste.models.linear.config import EaseConfig
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.registry import MODEL_NAMES
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.models.vae.config import DAEConfig, RecVAEConfig, VAEConfig
from foretaste.runs import Run
from foretaste.testing import Recipe

_NEUMF = {
    "epochs": 15,
    "batch_size": 256,
    "learning_rate": 0.02,
    "learning_rate_schedule": "constant",
}
_VAE = {"epochs": 12, "batch_size": 10, "learning_rate": 0.02}
_SPARSE = EaseConfig(neighbors=5)


class BlendRecipe(Recipe):
    """A blend of two other models."""

    is_seeded = True

    def train(self, dataset: Dataset, path: Path, *, seed: int = 1) -> Run:
        members = [
            RECIPES[one].train(dataset, path.with_name(f"{path.name}-{one}"), seed=seed)
            for one in ("ease", "vae")
        ]
        return foretaste.blend(members, weights=[0.4, 0.6], run=path, device="cpu")

    def train_with_defaults(self, dataset: Dataset, path: Path) -> Run:
        members = [
            RECIPES[one].train_with_defaults(dataset, path.with_name(one))
            for one in ("ease", "itemknn")
        ]
        return foretaste.blend(members, run=path, device="cpu")


RECIPES = {name: Recipe(model=name) for name in MODEL_NAMES} | {
    "neumf": Recipe(
        model="neumf",
        settings=_NEUMF,
        model_config=NeuMFConfig(factors=4, layers=(8, 16, 8), dropout=0.1),
    ),
    "gmf": Recipe(model="gmf", settings=_NEUMF, model_config=GMFConfig(factors=4)),
    "mlp": Recipe(
        model="mlp", settings=_NEUMF, model_config=MLPConfig(layers=(16, 16, 8), dropout=0.1)
    ),
    "vae": Recipe(model="vae", settings=_VAE, model_config=VAEConfig(hidden=(16,), latent=4)),
    "dae": Recipe(model="dae", settings=_VAE, model_config=DAEConfig(hidden=(16,), latent=4)),
    "recvae": Recipe(model="recvae", settings=_VAE, model_config=RecVAEConfig(width=16, latent=4)),
    "ials": Recipe(
        model="ials",
        settings={"epochs": 6},
        model_config=IALSConfig(factors=2, unobserved_weight=0.3),
    ),
    "sasrec": Recipe(
        model="sasrec",
        settings={"epochs": 20, "batch_size": 64, "learning_rate": 0.01},
        model_config=SASRecConfig(factors=16, blocks=1, max_length=8, dropout=0.1),
    ),
    "popularity": Recipe(model="popularity", is_personalized=False),
    "sparse ease": Recipe(model="ease", model_config=_SPARSE, defaults=_SPARSE),
    "blend": BlendRecipe(model="blend"),
}

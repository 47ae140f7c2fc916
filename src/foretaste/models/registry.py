"""The models by name; nothing of a model is imported before somebody asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from foretaste._util.formatting import similar_names
from foretaste._util.settings import setting_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from foretaste.models.base import RecommenderModel
    from foretaste.models.config import ModelConfig

_NEUMF = "foretaste.models.neumf"
_VAE = "foretaste.models.vae"
_LINEAR = "foretaste.models.linear"

MODELS = {
    "neumf": (f"{_NEUMF}.config:NeuMFConfig", f"{_NEUMF}.model:NeuMF"),
    "gmf": (f"{_NEUMF}.config:GMFConfig", f"{_NEUMF}.model:GMF"),
    "mlp": (f"{_NEUMF}.config:MLPConfig", f"{_NEUMF}.model:MLP"),
    "vae": (f"{_VAE}.config:VAEConfig", f"{_VAE}.model:MultVAE"),
    "dae": (f"{_VAE}.config:DAEConfig", f"{_VAE}.model:MultDAE"),
    "recvae": (f"{_VAE}.config:RecVAEConfig", f"{_VAE}.recvae:RecVAE"),
    "ials": ("foretaste.models.ials.config:IALSConfig", "foretaste.models.ials.model:IALS"),
    "popularity": (
        "foretaste.models.popularity.config:PopularityConfig",
        "foretaste.models.popularity.model:Popularity",
    ),
    "ease": (f"{_LINEAR}.config:EaseConfig", f"{_LINEAR}.ease:Ease"),
    "slist": (f"{_LINEAR}.config:SlistConfig", f"{_LINEAR}.slist:Slist"),
    "sasrec": (
        "foretaste.models.sasrec.config:SASRecConfig",
        "foretaste.models.sasrec.model:SASRec",
    ),
    "itemknn": (f"{_LINEAR}.config:ItemKNNConfig", f"{_LINEAR}.itemknn:ItemKNN"),
    "rp3beta": (f"{_LINEAR}.config:RP3betaConfig", f"{_LINEAR}.rp3beta:RP3beta"),
}
"""The settings and the class of every model, as ``module:name``, in the order help shows them."""

MODEL_NAMES = tuple(MODELS)
"""Every model of foretaste that can be trained."""

_GROUP = "foretaste.models"

_COMPOSED = {
    "blend": ("foretaste.models.blend.config:BlendConfig", "foretaste.models.blend.model:Blend")
}
"""Models made of runs, which have a command of their own."""


def other_models() -> dict[str, EntryPoint]:
    """Return the models of other packages by name, as their entry points name the classes."""
    from importlib.metadata import entry_points  # 20 ms, which help need not wait

    return {one.name: one for one in entry_points(group=_GROUP) if one.name not in MODELS}


def config_class(name: str) -> type[ModelConfig]:
    """Return the dataclass of the settings of model ``name``; SettingError for an unknown name."""
    kind: type[ModelConfig] = _load(name, 0)
    return kind


def model_class(name: str) -> type[RecommenderModel]:
    """Return the class of model ``name``, made of settings and the numbers of users and items."""
    kind: type[RecommenderModel] = _load(name, 1)
    return kind


class Definition(NamedTuple):
    """A model before its weights: its name and settings, and the numbers of users and items."""

    name: str
    config: ModelConfig
    num_users: int
    num_items: int


def build_model(
    name: str, config: ModelConfig, num_users: int, num_items: int, users: range | None = None
) -> RecommenderModel:
    """Return an untrained model ``name`` for so many users and catalogue items, on the CPU.

    ``config`` is an instance of ``config_class(name)``. With ``users``, it is a part of one, with
    the rows of these.
    """
    expected = config_class(name)
    assert isinstance(config, expected), f"{name} takes {expected.__name__}, got {config!r}"
    part = {} if users is None else {"users": users}
    return model_class(name)(config, num_users, num_items, **part)


def _load(name: str, which: int) -> Any:
    kinds = MODELS | _COMPOSED
    if name not in kinds:
        others = other_models()
        if name in others:
            kind = others[name].load()
            return kind if which else kind.config_class
        names = [*MODELS, *others]
        meant = similar_names(name, names)
        suggestion = f"; did you mean {meant[0]!r}?" if meant else ""
        raise setting_error("model", name, f"one of {', '.join(names)}{suggestion}")
    module, _, attribute = kinds[name][which].partition(":")
    return getattr(import_module(module), attribute)

"""The models by name; nothing of a model is imported until it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.models.base import RecommenderModel


@dataclass(frozen=True)
class _Entry:
    """Where a model lives, as ``module:name`` of its settings and of its class."""

    config: str
    model: str


_NEUMF = "foretaste.models.neumf"
_VAE = "foretaste.models.vae"
_BASELINES = "foretaste.models.baselines"

_REGISTRY = {
    "neumf": _Entry(f"{_NEUMF}.config:NeuMFConfig", f"{_NEUMF}.model:NeuMF"),
    "gmf": _Entry(f"{_NEUMF}.config:GMFConfig", f"{_NEUMF}.model:NeuMF"),
    "mlp": _Entry(f"{_NEUMF}.config:MLPConfig", f"{_NEUMF}.model:NeuMF"),
    "vae": _Entry(f"{_VAE}.config:VAEConfig", f"{_VAE}.model:MultVAE"),
    "dae": _Entry(f"{_VAE}.config:DAEConfig", f"{_VAE}.model:MultVAE"),
    "popularity": _Entry(
        f"{_BASELINES}.config:PopularityConfig", f"{_BASELINES}.popularity:Popularity"
    ),
    "ease": _Entry(f"{_BASELINES}.config:EaseConfig", f"{_BASELINES}.ease:Ease"),
}

MODEL_NAMES = tuple(_REGISTRY)
"""Every model that can be trained, in the order help shows them."""


def config_class(name: str) -> type[Any]:
    """The dataclass of the settings of model ``name``; SettingError for an unknown name."""
    return _load(_entry(name).config)


def build_model(name: str, config: object, num_users: int, num_items: int) -> RecommenderModel:
    """An untrained model ``name`` for that many training users and catalogue items, on the CPU.

    ``config`` is an instance of ``config_class(name)``.
    """
    expected = config_class(name)
    assert isinstance(config, expected), f"{name} takes {expected.__name__}, got {config!r}"
    model: RecommenderModel = _load(_entry(name).model)(config, num_users, num_items)
    return model


def _entry(name: str) -> _Entry:
    if name not in _REGISTRY:
        raise SettingError(f"model {name!r} is unknown; choose one of {', '.join(MODEL_NAMES)}")
    return _REGISTRY[name]


def _load(where: str) -> type[Any]:
    module, _, attribute = where.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found

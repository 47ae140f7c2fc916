"""The models by name; nothing of a model is imported until it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretaste._util.settings import wrong

if TYPE_CHECKING:
    from foretaste.models.base import RecommenderModel


@dataclass(frozen=True)
class _Entry:
    """Where a model lives, as ``module:name`` of its settings and of its class, and its kind."""

    config: str
    model: str
    samples_negatives: bool = False
    is_closed_form: bool = False
    has_large_products: bool = True


_NEUMF = "foretaste.models.neumf"
_VAE = "foretaste.models.vae"
_BASELINES = "foretaste.models.baselines"

_REGISTRY = {
    "neumf": _Entry(f"{_NEUMF}.config:NeuMFConfig", f"{_NEUMF}.model:NeuMF", True),
    "gmf": _Entry(
        f"{_NEUMF}.config:GMFConfig", f"{_NEUMF}.model:NeuMF", True, has_large_products=False
    ),
    "mlp": _Entry(f"{_NEUMF}.config:MLPConfig", f"{_NEUMF}.model:NeuMF", True),
    "vae": _Entry(f"{_VAE}.config:VAEConfig", f"{_VAE}.model:MultVAE"),
    "dae": _Entry(f"{_VAE}.config:DAEConfig", f"{_VAE}.model:MultVAE"),
    "popularity": _Entry(
        f"{_BASELINES}.config:PopularityConfig",
        f"{_BASELINES}.popularity:Popularity",
        is_closed_form=True,
        has_large_products=False,
    ),
    "ease": _Entry(
        f"{_BASELINES}.config:EaseConfig",
        f"{_BASELINES}.ease:Ease",
        is_closed_form=True,
        has_large_products=False,
    ),
}

MODEL_NAMES = tuple(_REGISTRY)
"""Every model that can be trained, in the order help shows them."""

SAMPLING_MODELS = tuple(name for name, entry in _REGISTRY.items() if entry.samples_negatives)
"""Those that learn from sampled negatives."""

CLOSED_FORMS = tuple(name for name, entry in _REGISTRY.items() if entry.is_closed_form)
"""Those that are fitted in one pass: they have no epochs and no first weights."""

PRODUCTLESS_MODELS = tuple(
    name for name, entry in _REGISTRY.items() if not entry.has_large_products
)
"""Those for which the precision of training changes nothing."""


def config_class(name: str) -> type[Any]:
    """The dataclass of the settings of model ``name``; SettingError for an unknown name."""
    return _load(_entry(name).config)


def build_model(name: str, config: object, num_users: int, num_items: int) -> RecommenderModel:
    """An untrained model ``name`` for that many training users and catalogue items, on the CPU.

    ``config`` is an instance of ``config_class(name)``.
    """
    expected = config_class(name)
    assert isinstance(config, expected), f"{name} takes {expected.__name__}, got {config!r}"
    model: RecommenderModel = model_class(name)(config, num_users, num_items)
    return model


def model_class(name: str) -> type[Any]:
    """The class of model ``name``, made of settings and the numbers of users and items."""
    return _load(_entry(name).model)


def _entry(name: str) -> _Entry:
    if not isinstance(name, str) or name not in _REGISTRY:
        raise wrong("model", name, f"one of {', '.join(MODEL_NAMES)}")
    return _REGISTRY[name]


def _load(where: str) -> type[Any]:
    module, _, attribute = where.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found

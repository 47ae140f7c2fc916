"""foretaste: from who-touched-what to recommendations.

::

    import foretaste

    dataset = foretaste.prepare("ratings.csv", "datasets/ratings")
    run = foretaste.train("neumf", dataset)
    recommender = foretaste.load(run.path)
    recommender.recommend([42], k=10)

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretaste.data import Dataset, PrepareConfig, open_dataset, prepare
    from foretaste.errors import ForetasteError
    from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig, SamplingConfig
    from foretaste.models.vae.config import DAEConfig, VAEConfig
    from foretaste.recommend import Answer, Recommender, load
    from foretaste.runs import Run
    from foretaste.training import TrainingConfig, train

__version__ = "0.1.0"

_PUBLIC = {
    "Answer": "foretaste.recommend",
    "DAEConfig": "foretaste.models.vae.config",
    "Dataset": "foretaste.data",
    "ForetasteError": "foretaste.errors",
    "GMFConfig": "foretaste.models.neumf.config",
    "MLPConfig": "foretaste.models.neumf.config",
    "NeuMFConfig": "foretaste.models.neumf.config",
    "PrepareConfig": "foretaste.data",
    "Recommender": "foretaste.recommend",
    "Run": "foretaste.runs",
    "SamplingConfig": "foretaste.models.neumf.config",
    "TrainingConfig": "foretaste.training",
    "VAEConfig": "foretaste.models.vae.config",
    "load": "foretaste.recommend",
    "open_dataset": "foretaste.data",
    "prepare": "foretaste.data",
    "train": "foretaste.training",
}

__all__ = [*sorted(_PUBLIC), "__version__"]  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'foretaste' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

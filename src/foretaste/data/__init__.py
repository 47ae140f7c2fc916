"""Raw interactions, prepared datasets, and the arrays that training and evaluation read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.data.config import PairsConfig, PrepareConfig
    from foretaste.data.dataset import Dataset, HeldOut, open_dataset, open_or_prepare
    from foretaste.data.histories import Histories
    from foretaste.data.ids import IdTable
    from foretaste.data.manifest import Manifest
    from foretaste.data.preparation import prepare, read_histories
    from foretaste.data.preparation.inputs import GivenSplit
    from foretaste.data.synthetic import Generated, generate, generate_histories
    from foretaste.data.synthetic_config import GenerateConfig, ml_20m_shape
    from foretaste.data.verification import Check, Verification, verify_dataset

_MODULE_OF = {
    "Check": "verification",
    "Dataset": "dataset",
    "GenerateConfig": "synthetic_config",
    "Generated": "synthetic",
    "GivenSplit": "preparation.inputs",
    "HeldOut": "dataset",
    "Histories": "histories",
    "IdTable": "ids",
    "Manifest": "manifest",
    "PairsConfig": "config",
    "PrepareConfig": "config",
    "Verification": "verification",
    "generate": "synthetic",
    "generate_histories": "synthetic",
    "ml_20m_shape": "synthetic_config",
    "open_dataset": "dataset",
    "open_or_prepare": "dataset",
    "prepare": "preparation",
    "read_histories": "preparation",
    "verify_dataset": "verification",
}

__all__ = [
    "Check",
    "Dataset",
    "GenerateConfig",
    "Generated",
    "GivenSplit",
    "HeldOut",
    "Histories",
    "IdTable",
    "Manifest",
    "PairsConfig",
    "PrepareConfig",
    "Verification",
    "generate",
    "generate_histories",
    "ml_20m_shape",
    "open_dataset",
    "open_or_prepare",
    "prepare",
    "read_histories",
    "verify_dataset",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)

"""Raw interactions, prepared datasets, and the arrays that training and evaluation read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.data.config import GenerateConfig, PairsConfig, PrepareConfig, ml_20m_shape
    from foretaste.data.dataset import Dataset, HeldOut, open_dataset
    from foretaste.data.generation import (
        Generated,
        generate,
        generate_histories,
    )
    from foretaste.data.given_split import GivenSplit
    from foretaste.data.histories import Histories
    from foretaste.data.ids import IdTable
    from foretaste.data.manifest import Manifest
    from foretaste.data.preparation import open_or_prepare, prepare
    from foretaste.data.raw_histories import read_histories
    from foretaste.data.verification import Check, Verification, verify_dataset

_MODULE_OF = {
    "Check": "verification",
    "Dataset": "dataset",
    "GenerateConfig": "config",
    "Generated": "generation",
    "GivenSplit": "given_split",
    "HeldOut": "dataset",
    "Histories": "histories",
    "IdTable": "ids",
    "Manifest": "manifest",
    "PairsConfig": "config",
    "PrepareConfig": "config",
    "Verification": "verification",
    "generate": "generation",
    "generate_histories": "generation",
    "ml_20m_shape": "config",
    "open_dataset": "dataset",
    "open_or_prepare": "preparation",
    "prepare": "preparation",
    "read_histories": "raw_histories",
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

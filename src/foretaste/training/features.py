"""Features of items, as a model gets them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foretaste.data.dataset import Dataset
from foretaste.errors import UnsupportedError
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import RecommenderModel
from foretaste.models.config import ModelConfig


def hand_features(dataset: Dataset, model: RecommenderModel, device: torch.device) -> None:
    """Give a model the items of each feature value, if it takes them."""
    take = getattr(model, "take_features", None)
    if model.config.uses_features and take is not None and dataset.features is not None:
        take(to_device(dataset.features.histories, device))


def check_features(config: ModelConfig, dataset: Dataset, needed: Sequence[str]) -> None:
    """Raise UnsupportedError if the settings need features, or columns, that the data lack."""
    columns = dataset.manifest.feature_columns
    present = {_column(asked) for asked in columns}
    if missing := [asked for asked in needed if _column(asked) not in present]:
        raise UnsupportedError(
            f"{dataset.path}: the run that is repeated learned from the features "
            f"{', '.join(needed)}, and {', '.join(missing)} is not among the features of these "
            f"data; prepare them with --features {' '.join(needed)}"
        )
    weight = getattr(config, "feature_weight", "auto")
    if not columns and weight not in ("auto", 0):
        raise UnsupportedError(
            f"{dataset.path}: feature_weight is {weight:g}, and these data have no features; "
            "prepare them with --items FILE --features COLUMN, or leave --feature-weight out"
        )


def _column(asked: str) -> str:
    """Return the column of a feature that was asked for, with its separator if it was given, as in
    ``genres|``. A column of lists is asked for without a separator."""
    return asked if asked[-1].isalnum() else asked[:-1]

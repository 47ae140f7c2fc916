"""From a run directory back to the model it holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from foretaste._util.settings import checked, from_document
from foretaste.errors import RunError, SettingError
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import build_model, config_class
from foretaste.ops.device import resolve_device
from foretaste.runs.config import RunConfig
from foretaste.runs.paths import CONFIG
from foretaste.runs.run import Run
from foretaste.runs.weights import WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from foretaste.models.base import RecommenderModel


def load_model(run: Run, device: str | torch.device = "auto") -> RecommenderModel:
    """The trained model of a run on ``device``, ready to answer (not to train).

    Raises RunError where the settings or the weights are not those of such a model, naming the
    first that differs.
    """
    place = checked("device", device, torch.device | str)
    if not isinstance(place, torch.device):
        place = resolve_device(place)
    settings = model_config(run.config, run.path / CONFIG)
    made_of = (run.config.model, settings, run.num_train_users, run.num_items)
    check_model_fits(*made_of, place)
    model = build_model(*made_of)
    weights = run.load_weights()
    _check_weights(run, model.state_dict(), weights)
    model.load_state_dict(weights)
    return model.to(place).eval()


def model_config(config: RunConfig, path: Path) -> Any:
    """The settings of the model of a run, as an instance of its config class.

    ``path`` is where they were read; RunError names it where they are not those of the model.
    """
    try:
        return from_document(config_class(config.model), config.model_config)
    except SettingError as error:
        raise RunError(f"{path}: {error}") from error


def _check_weights(run: Run, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    path = run.path / WEIGHTS
    if missing := sorted(expected.keys() - found.keys()):
        raise RunError(f"{path} lacks {missing[0]!r}, which {run.config.model} needs")
    if foreign := sorted(found.keys() - expected.keys()):
        raise RunError(f"{path} holds {foreign[0]!r}, which {run.config.model} does not have")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise RunError(
                f"{path}: {name!r} has shape {list(found[name].shape)}, "
                f"{run.config.model} expects {list(tensor.shape)}"
            )
        if not _is_finite(found[name]):
            raise RunError(f"{path}: {name!r} holds numbers that are not finite")


def _is_finite(tensor: Tensor) -> bool:
    """Whether every number is; in one pass, without a tensor of the same size."""
    if not tensor.numel():
        return True
    lowest, highest = torch.aminmax(tensor)
    return bool(torch.isfinite(lowest) & torch.isfinite(highest))

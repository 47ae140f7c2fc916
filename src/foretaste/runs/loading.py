"""From a run directory back to the dataset it was trained on and the model it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.atomic import moved_away
from foretaste._util.settings import checked, from_document
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.errors import DatasetError, RunError, SettingError
from foretaste.models.registry import build_model, config_class
from foretaste.runs.checkpoint_files import WEIGHTS, SavedTensors
from foretaste.runs.config import RunConfig
from foretaste.runs.paths import CONFIG
from foretaste.runs.run import Run

if TYPE_CHECKING:
    import torch

    from foretaste.models.base import RecommenderModel


def dataset_of(run: Run, dataset: Dataset | Path | str | None = None) -> Dataset:
    """The dataset a run was trained on: ``dataset``, which may be its directory; unless given,
    opened where it was then.

    Raises DatasetError where it is not there any more, or holds other data: its users and items
    would be others, even where they are as many.
    """
    reference = run.config.dataset
    if not isinstance(dataset, Dataset):
        path = Path(reference.path) if dataset is None else checked("dataset", dataset, Path)
        if dataset is None and not path.is_dir():
            raise DatasetError(
                f"{run.path} was trained on {path}, which is not there any more; "
                f"say where it is now with --dataset{moved_away(path)}"
            )
        dataset = open_dataset(path)
    if dataset.manifest.digest != reference.digest:
        raise DatasetError(
            f"{dataset.path} does not hold what {run.path} was trained on: its digest is "
            f"{dataset.manifest.digest[:12]}, that of {reference.name} was "
            f"{reference.digest[:12]}; prepare it with the same input, settings and seed"
        )
    return dataset


def load_model(run: Run, device: str | torch.device = "auto") -> RecommenderModel:
    """The trained model of a run on ``device``, ready to answer (not to train).

    Its weights are a copy in memory: what becomes of the file later does not reach it.

    Raises RunError where the settings or the weights are not those of such a model, naming the
    first that differs.
    """
    # `dataset_of` is called before torch is needed, so that a wrong path need not wait for it.
    import torch

    from foretaste.models.memory import check_model_fits
    from foretaste.ops.device import resolve_device

    device = checked("device", device, torch.device | str)
    if not isinstance(device, torch.device):
        device = resolve_device(device)
    config = model_config(run.config, run.path / CONFIG)
    definition = (run.config.model, config, run.num_train_users, run.num_items)
    check_model_fits(*definition, device)
    with torch.device("meta"):  # the weights, when they are read, are all the memory it takes
        model = build_model(*definition)
    weights = run.open_weights()
    check_weights(run, model, weights)
    model.load_state_dict(weights.tensors, assign=True)
    return model.to(device).eval()


def model_config(config: RunConfig, path: Path) -> Any:
    """The settings of the model of a run, as an instance of its config class.

    ``path`` is where they were read; RunError names it where they are not those of the model.
    """
    try:
        return from_document(config_class(config.model), config.model_config)
    except SettingError as error:
        raise RunError(f"{path}: {error}") from error


def check_weights(run: Run, model: RecommenderModel, weights: SavedTensors) -> None:
    """RunError unless these are weights of such a model, all finite."""
    import torch

    path, name_of_model = run.path / WEIGHTS, run.config.model
    expected = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: list(tensor.shape) for name, tensor in weights.tensors.items()}
    if missing := sorted(expected.keys() - found.keys()):
        raise RunError(f"{path} lacks {missing[0]!r}, which {name_of_model} needs")
    if foreign := sorted(found.keys() - expected.keys()):
        raise RunError(f"{path} holds {foreign[0]!r}, which {name_of_model} does not have")
    for name in found:
        if found[name] != (shape := expected[name]):
            raise RunError(
                f"{path}: {name!r} has shape {found[name]}, {name_of_model} expects {shape}"
            )
        tensor = weights.tensors[name]
        # In one pass, without a tensor of the same size.
        extremes = torch.aminmax(tensor) if tensor.numel() else ()
        if not all(torch.isfinite(extreme) for extreme in extremes):
            raise RunError(f"{path}: {name!r} holds numbers that are not finite")

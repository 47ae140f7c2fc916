"""From a run back to the dataset it was trained on."""

from __future__ import annotations

from pathlib import Path

from foretaste._util.atomic import bring_back
from foretaste._util.settings import checked
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.errors import DatasetError
from foretaste.runs.run import Run


def dataset_of(run: Run, dataset: Dataset | Path | str | None = None) -> Dataset:
    """The dataset a run was trained on: ``dataset``, which may be its directory; unless given,
    opened where it was then.

    Raises DatasetError where it is not there any more, or holds other data: its users and items
    would be others, even where they are as many.
    """
    if not isinstance(dataset, Dataset):
        dataset = _opened(run, dataset)
    reference = run.config.dataset
    if dataset.manifest.digest != reference.digest:
        raise DatasetError(
            f"{dataset.path} does not hold what {run.path} was trained on: its digest is "
            f"{dataset.manifest.digest[:12]}, that of {reference.name} was "
            f"{reference.digest[:12]}; prepare it with the same input, settings and seed"
        )
    return dataset


def _opened(run: Run, path: Path | str | None) -> Dataset:
    place = Path(run.config.dataset.path) if path is None else checked("dataset", path, Path)
    bring_back(place)
    if path is None and not place.is_dir():
        raise DatasetError(
            f"{run.path} was trained on {place}, which is not there any more; "
            "say where it is now with --dataset"
        )
    return open_dataset(place)

"""Where the reference scripts' paths lead among datasets and runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.errors import RunError, SettingError

_RAW_ML_20M = Path("ml-20m", "extracted", "ml-20m")
"""Where the VAE's guide has its data unpacked, below ``--data_dir``."""


def run_of(path: str) -> str:
    """The run of a checkpoint: of ``RUN/model.ckpt``, RUN."""
    checkpoint = Path(path)
    is_file_name = checkpoint.suffix == ".ckpt" and not checkpoint.exists()
    return str(checkpoint.parent) if is_file_name else path


def dataset_below(directory: str, name: str | None = None) -> str:
    """The dataset ``name`` in a directory of datasets, or the only one there.

    SettingError where there is none, or which one is meant is not said.
    """
    root = Path(directory)
    if name is not None:
        place = place_in(directory, name)
        if (place / FILE_NAME).is_file():
            return str(place)
        raise SettingError(
            f"{place} is not a dataset; make it: foretaste prepare {name} --data-dir {root}"
        )
    found = [str(path.parent) for path in _manifests(root)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise SettingError(
            f"--data-dir {root} has no dataset in it; make one: foretaste prepare ml-20m "
            f"--protocol held-out-users --data-dir {root}"
        )
    raise SettingError(
        f"--data-dir {root} has several datasets; name one: {', '.join(sorted(found))}"
    )


def place_in(directory: str, name: str) -> Path:
    """Where the dataset ``name`` goes in a directory of datasets, beside raw files of that name."""
    place = Path(directory, name)
    is_taken = place.is_dir() and not (place / FILE_NAME).is_file()
    return place / "prepared" if is_taken else place


def _manifests(root: Path) -> Iterator[Path]:
    for depth in ("", "*/", "*/*/"):
        yield from root.glob(depth + FILE_NAME)


def raw_ml_20m(directory: str) -> str | None:
    """The unpacked data set where the VAE's guide puts it; None where it is not."""
    raw = Path(directory) / _RAW_ML_20M
    return str(raw) if raw.is_dir() else None


def shape_of_dataset(path: str) -> str:
    """Users, items and interactions of a dataset, as benchmarks name a shape."""
    manifest = Manifest.read(Path(path))
    return f"{manifest.num_train_users}x{manifest.num_items}x{manifest.num_interactions}"


def model_settings_of_run(path: str) -> tuple[str, dict[str, Any]]:
    """The model of a run and its settings; RunError where there is no such run."""
    from foretaste.runs.config import read_run_config
    from foretaste.runs.run import CONFIG

    if not (Path(path) / CONFIG).is_file():
        raise RunError(f"{path} is not a run directory: it has no {CONFIG}")
    config = read_run_config(Path(path) / CONFIG)
    return config.model, dict(config.model_config)


def shape_of_run(path: str) -> str:
    """Users, items and interactions that a run was trained with, as benchmarks name a shape."""
    from foretaste.runs.run import Run

    run = Run.open(path)
    num_interactions = int(run.histories.lengths()[: run.num_train_users].sum())
    return f"{run.num_train_users}x{run.num_items}x{num_interactions}"

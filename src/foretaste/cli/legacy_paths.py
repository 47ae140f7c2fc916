"""Where the reference scripts' paths lead among datasets and runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretaste.cli.legacy_tokens import VAE_MODELS
from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.errors import RunError, SettingError

DATA = Path("/data")
"""Where the scripts keep data unless told otherwise: a folder of their containers."""

SUCCESSOR = Path("datasets")
"""Where data are kept here."""

_RAW_ML_20M = Path("ml-20m", "extracted", "ml-20m")
"""Where the VAE's guide has its data unpacked, below ``--data_dir``."""

_TF_CHECKPOINT = re.compile(r"\.ckpt(-\d+)?(\.(index|meta|data-\d+-of-\d+))?$")


def run_of(path: str) -> str:
    """The run of a checkpoint: of ``RUN/model.ckpt``, RUN.

    RunError for a checkpoint of TensorFlow.
    """
    checkpoint = Path(path)
    named = _TF_CHECKPOINT.search(checkpoint.name)
    if (named and (named[3] or _is_tensorflows(checkpoint))) or _holds_tensorflows(checkpoint):
        raise RunError(
            f"{path} is a checkpoint of TensorFlow, which cannot be read here: train the model "
            "again, on the same data, and name the run's directory"
        )
    return str(checkpoint.parent) if named and not checkpoint.exists() else path


def _is_tensorflows(checkpoint: Path) -> bool:
    return checkpoint.with_name(f"{checkpoint.name}.index").exists()


def _holds_tensorflows(directory: Path) -> bool:
    from foretaste.runs.paths import CONFIG

    return not (directory / CONFIG).exists() and any(directory.glob("*.ckpt*.index"))


def root_to_fill() -> Path:
    """Where data go that nobody said a place for."""
    return DATA if DATA.is_dir() and os.access(DATA, os.W_OK) else SUCCESSOR


def default_dataset(model: str | None) -> str:
    """The dataset of a training that names none; SettingError where there is none, or several."""
    for root in (DATA, SUCCESSOR):
        if any(_datasets_below(root)):
            return dataset_below(str(root), model)
    raise SettingError(
        f"DATASET is needed and not given, and neither {DATA} nor {SUCCESSOR} has a dataset in it; "
        "make one: foretaste prepare"
    )


def successor_of(path: str, model: str | None) -> str | None:
    """What stands for a dataset in the scripts' own folder that is not there: the only one of that
    name and the model's protocol; None where there is no such, or no need."""
    asked = Path(path)
    if asked.exists() or not asked.is_relative_to(DATA):
        return None
    found = [
        dataset
        for root in (DATA, SUCCESSOR)
        for dataset in _datasets_below(root)
        if dataset.name == asked.name or dataset.name.startswith(f"{asked.name}-")
    ]
    fitting = _of_protocol(found, model)
    return str(fitting[0]) if len(fitting) == 1 else None


def dataset_below(directory: str, model: str | None, name: str | None = None) -> str:
    """The dataset ``name`` in a directory of datasets, or the only one there; of several, the only
    one of the protocol that the model's script has.

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
    found = list(_datasets_below(root))
    if not found:
        raise SettingError(
            f"--data-dir {root} has no dataset in it; make one: foretaste prepare ml-20m "
            f"--protocol held-out-users --data-dir {root}"
        )
    fitting = found if len(found) == 1 else _of_protocol(found, model)
    if len(fitting) == 1:
        return str(fitting[0])
    names = ", ".join(sorted(map(str, fitting or found)))
    raise SettingError(f"the folder {root} has several datasets; name one: {names}")


def place_in(directory: str, name: str) -> Path:
    """Where the dataset ``name`` goes in a directory of datasets, beside raw files of that name."""
    place = Path(directory, name)
    is_taken = place.is_dir() and not (place / FILE_NAME).is_file()
    return place / "prepared" if is_taken else place


def _datasets_below(root: Path) -> Iterator[Path]:
    for depth in ("", "*/", "*/*/"):
        for manifest in root.glob(depth + FILE_NAME):
            if not any(part.startswith(".") for part in manifest.relative_to(root).parts):
                yield manifest.parent


def _of_protocol(datasets: Iterable[Path], model: str | None) -> list[Path]:
    """Those split as the script of a model has it."""
    wanted = "held-out-users" if model in VAE_MODELS else "leave-one-out"
    return [path for path in datasets if Manifest.read(path).protocol.startswith(wanted)]


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
    from foretaste.runs.paths import CONFIG

    if not (Path(path) / CONFIG).is_file():
        raise RunError(f"{path} is not a run directory: it has no {CONFIG}")
    config = read_run_config(Path(path) / CONFIG)
    return config.model, dict(config.model_config)


def would_be_replaced(run: str | None, log: str | None, results: str | None) -> list[str]:
    """Of the places that a command writes to, those that hold what an earlier one wrote."""
    from foretaste.runs.copies import results_in
    from foretaste.runs.paths import CONFIG

    return [
        place
        for place, is_taken in (
            (run, run is not None and (Path(run) / CONFIG).is_file()),
            (log, log is not None and Path(log).is_file() and Path(log).stat().st_size > 0),
            (results, results is not None and bool(results_in(Path(results)))),
        )
        if place is not None and is_taken
    ]


def shape_of_run(path: str) -> str:
    """Users, items and interactions that a run was trained with, as benchmarks name a shape."""
    from foretaste.runs.run import Run

    run = Run.open(path)
    num_interactions = int(run.histories.lengths()[: run.num_train_users].sum())
    return f"{run.num_train_users}x{run.num_items}x{num_interactions}"

"""Options of NVIDIA's scripts that name a path, and the datasets and runs that they lead to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from foretaste.cli.nvidia_line import VAE_MODELS, Line
from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.errors import RunError, SettingError
from foretaste.runs.files import CONFIG

DATA = Path("/data")
"""The scripts' own folder of data, mounted in their containers."""

SUCCESSOR = Path("datasets")
"""The folder of data here."""

_RAW_ML_20M = Path("ml-20m", "extracted", "ml-20m")
"""The unpacked data of the VAE's guide, below ``--data_dir``."""


def run(line: Line, written: str, path: str) -> str:
    """The run of a checkpoint: of ``RUN/model.ckpt``, RUN.

    RunError for a checkpoint of TensorFlow.
    """
    checkpoint = Path(path)
    is_named = ".ckpt" in checkpoint.name
    directory = checkpoint.parent if is_named else checkpoint
    if any(directory.glob("*.ckpt*.index")) and not (directory / CONFIG).exists():
        raise RunError(
            f"{path} is a checkpoint of TensorFlow, which cannot be read here: train the model "
            "again, on the same data, and name the run's directory"
        )
    return str(directory) if is_named else path


def dataset(line: Line, written: str, path: str) -> str:
    """A dataset that is there.

    Where the scripts' own folder lacks it, the only one of that name and of the model's protocol.
    """
    missing = Path(path)
    if missing.exists() or not missing.is_relative_to(DATA):
        return path
    named = [
        found
        for root in (DATA, SUCCESSOR)
        for found in _datasets_below(root)
        if found.name == missing.name or found.name.startswith(f"{missing.name}-")
    ]
    fitting = _of_protocol(named, line.script_model)
    if len(fitting) != 1:
        return path
    line.notes.append(f"{written} {path} is not there: {fitting[0]} is taken")
    return str(fitting[0])


def dataset_in(line: Line, written: str, directory: str) -> str:
    """The only dataset there, or, of a training, the one that is named."""
    name = line.take_place() if line.command.verb == "train" else None
    return _dataset_below(directory, line.script_model, name)


def shape(line: Line, written: str, value: str) -> str:
    """Size of a dataset, as that of generated data."""
    manifest = Manifest.read(Path(dataset(line, written, value)))
    sizes = manifest.num_train_users, manifest.num_items, manifest.num_interactions
    return "x".join(map(str, sizes))


def shape_in(line: Line, written: str, value: str) -> str:
    """The same of the only dataset there."""
    return shape(line, written, dataset_in(line, written, value))


def prepared_in(line: Line, written: str, value: str) -> None:
    """Directory of datasets; MovieLens 20M with the VAE's split where no source is named."""
    name = line.place or line.kept_place()
    if name is None:
        name = "ml-20m"
        line.add(written, "SOURCES", name)
        if not line.has("--protocol"):
            line.add(written, "--protocol", "held-out-users")
        if (raw := _raw_ml_20m(value)) and not line.has("--source-dir"):
            line.add(written, "--source-dir", raw)
    line.add(written, "--output", str(_place_in(value, Path(name).name.partition(".")[0])))


def prepared_as_in_the_guides() -> tuple[list[list[str]], list[str]]:
    """The lines of a mere ``prepare``, MovieLens 20M for either script; and a note on it."""
    root = DATA if DATA.is_dir() and os.access(DATA, os.W_OK) else SUCCESSOR
    ncf = _place_in(str(root / "cache"), "ml-20m")
    raw = _raw_ml_20m(str(root))
    start = ["prepare", "ml-20m", *(("--source-dir", raw) if raw else ())]
    lines = [
        [*start, "--validation", "none", "--output", str(ncf)],
        [*start, "--protocol", "held-out-users", "--output", str(_place_in(str(root), "ml-20m"))],
    ]
    return lines, [
        "no SOURCES: MovieLens 20M is prepared for NCF and for the VAE, as NVIDIA's guides do; "
        f"both below {root}"
    ]


def split_as_theirs(line: Line, model: str | None) -> None:
    """Prepare raw data with the protocol and the filters of a model's script."""
    protocol = "held-out-users" if model in VAE_MODELS else "leave-one-out"
    settings = {"--protocol": protocol, "--filters": "reference"}
    added = {name: value for name, value in settings.items() if not line.has(name)}
    for name, value in added.items():
        line.add("the script", name, value)
    if added:
        words = " ".join(f"{name} {value}" for name, value in added.items())
        line.notes.append(f"the data are prepared as the script did it: {words}")


def is_raw(place: str | None) -> bool:
    """True for files that have to be prepared; False for a dataset, or nothing at all."""
    from foretaste.data.movielens import NAMED_SETS

    if place is None or place in NAMED_SETS:
        return place is not None
    return Path(place).exists() and not (Path(place) / FILE_NAME).is_file()


def replace_as_theirs(line: Line) -> None:
    """Write over run, log and results, as the scripts did; not over a run of another model."""
    from foretaste.runs.config import read_run_config
    from foretaste.training.logs import results_in

    run_path, log, results = map(line.value_of, ("--run", "--log-path", "--results-dir"))
    taken = []
    if run_path and (config := Path(run_path) / CONFIG).is_file():
        if read_run_config(config).model != line.command.model:
            return
        taken.append(run_path)
    if log and Path(log).is_file() and Path(log).stat().st_size > 0:
        taken.append(log)
    if results and results_in(Path(results)):
        taken.append(results)
    if taken and not line.has("--overwrite"):
        line.add("the script", "--overwrite")
        line.notes.append(f"{', '.join(taken)}: replaced once this is finished (--overwrite)")


def default_dataset(model: str | None) -> str:
    """The dataset of a training that names none; SettingError where there is none, or several."""
    for root in (DATA, SUCCESSOR):
        if any(_datasets_below(root)):
            return _dataset_below(str(root), model)
    raise SettingError(
        f"DATASET is needed and not given, and neither {DATA} nor {SUCCESSOR} has a dataset in it; "
        "make one: foretaste prepare"
    )


def _dataset_below(directory: str, model: str | None, name: str | None = None) -> str:
    """The dataset ``name`` in a directory of datasets, or the only one there; of several, the only
    one of the protocol that the model's script has.

    SettingError where there is none, or the name is missing where there are some.
    """
    root = Path(directory)
    if name is not None:
        place = _place_in(directory, name)
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


def _place_in(directory: str, name: str) -> Path:
    """The place of the dataset ``name`` in a directory, beside raw files of that name."""
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


def _raw_ml_20m(directory: str) -> str | None:
    """The unpacked data set of the VAE's guide; None where it is not there."""
    raw = Path(directory) / _RAW_ML_20M
    return str(raw) if raw.is_dir() else None

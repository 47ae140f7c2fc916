"""Options of NVIDIA's scripts with a path, and the datasets and runs at these paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from foretaste.cli.nvidia_line import VAE_MODELS, Line
from foretaste.data.manifest import FILE_NAME, Manifest, is_dataset
from foretaste.errors import SettingError
from foretaste.runs.files import CONFIG

DATA = Path("/data")
"""The scripts' folder of data, which is mounted in their containers."""

SUCCESSOR = Path("datasets")
"""foretaste's folder of datasets."""

_RAW_ML_20M = Path("ml-20m", "extracted", "ml-20m")
"""Place of the unpacked data below ``--data_dir``, by the VAE's guide."""


def run(line: Line, path: str) -> str:
    """The run of a checkpoint's path: RUN for ``RUN/model.ckpt``."""
    checkpoint = Path(path)
    return str(checkpoint.parent) if ".ckpt" in checkpoint.name else path


def dataset_in(line: Line, directory: str) -> str:
    """The only dataset in a directory; for a training, the one that is named."""
    name = line.take_place() if line.command.verb == "train" else None
    return _dataset_below(directory, line.script_model, name)


def shape(line: Line, value: str) -> str:
    """The sizes of a dataset, for generated data of the same sizes."""
    manifest = Manifest.read(Path(value))
    sizes = manifest.num_train_users, manifest.num_items, manifest.num_interactions
    return "x".join(map(str, sizes))


def shape_in(line: Line, value: str) -> str:
    """The sizes of the only dataset in a directory, as `shape`."""
    return shape(line, dataset_in(line, value))


def prepared_in(line: Line, written: str, value: str) -> None:
    """Prepare into a directory of datasets; by default MovieLens 20M with the VAE's split."""
    name = line.place or line.kept_place()
    if name is None:
        name = "ml-20m"
        line.add(written, "SOURCES", name)
        if not line.has("--protocol"):
            line.add(written, "--protocol", "held-out-users")
        raw = Path(value, _RAW_ML_20M)
        if raw.is_dir() and not line.has("--source-dir"):
            line.add(written, "--source-dir", str(raw))
    line.add(written, "--output", str(_place_in(value, Path(name).name.partition(".")[0])))


def split_as_theirs(line: Line, model: str | None) -> None:
    """Prepare raw data with the protocol and the filters of a model's script; the three files of
    the NCF paper are split already."""
    from foretaste.data.preparation.inputs import as_given_split

    if as_given_split(line.place or line.kept_place()) is not None:
        return
    protocol = "held-out-users" if model in VAE_MODELS else "leave-one-out"
    settings = {"--protocol": protocol, "--filters": "reference"}
    added = {name: value for name, value in settings.items() if not line.has(name)}
    for name, value in added.items():
        line.add("the script", name, value)
    if added:
        words = " ".join(f"{name} {value}" for name, value in added.items())
        line.notes.append(f"the data are prepared as NVIDIA's script did it: {words}")


def is_raw(place: str | None) -> bool:
    """True for files that have to be prepared; False for a dataset, and for None."""
    from foretaste.data.movielens import NAMED_SETS

    if place is None or place in NAMED_SETS:
        return place is not None
    return Path(place).exists() and not is_dataset(Path(place))


def replace_as_theirs(line: Line) -> None:
    """Overwrite run, log and results, as the scripts did, unless the run is of another model."""
    from foretaste._util.files import remove_leftovers
    from foretaste.runs.config import read_run_config
    from foretaste.training.logs import results_in

    run_path, log, results = map(line.value_of, ("--run", "--log-path", "--results-dir"))
    taken = []
    if run_path:
        remove_leftovers(Path(run_path))  # puts a run back that a kill had between two names
    if run_path and (config := Path(run_path) / CONFIG).is_file():
        if read_run_config(config).model != line.command.model:
            return
        taken.append(f"{run_path} (once the new training is finished)")
    if log and Path(log).is_file() and Path(log).stat().st_size > 0:
        taken.append(log)
    if results and results_in(Path(results)):
        taken.append(results)
    if taken and not line.has("--overwrite"):
        line.add("the script", "--overwrite")
        line.notes.append(f"{', '.join(taken)}: replaced (--overwrite)")


def default_dataset(model: str | None) -> str:
    """The default dataset of a training; SettingError if there is none, or several."""
    for root in (DATA, SUCCESSOR):
        if any(_datasets_below(root)):
            return _dataset_below(str(root), model)
    raise SettingError(
        f"DATASET is needed and not given, and neither {DATA} nor {SUCCESSOR} has a dataset in it; "
        "make one: foretaste prepare ml-20m"
    )


def _dataset_below(directory: str, model: str | None, name: str | None = None) -> str:
    """The dataset ``name`` in a directory of datasets. Without a name it is the only dataset there,
    or the only one with the protocol of the model's script.

    SettingError if there is no such dataset, or several.
    """
    root = Path(directory)
    if name is not None:
        place = _place_in(directory, name)
        if is_dataset(place):
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
    is_taken = place.is_dir() and not is_dataset(place)
    return place / "prepared" if is_taken else place


def _datasets_below(root: Path) -> Iterator[Path]:
    for depth in ("", "*/", "*/*/"):
        for manifest in root.glob(depth + FILE_NAME):
            if not any(part.startswith(".") for part in manifest.relative_to(root).parts):
                yield manifest.parent


def _of_protocol(datasets: Iterable[Path], model: str | None) -> list[Path]:
    """The datasets with the protocol of a model's script."""
    wanted = "held-out-users" if model in VAE_MODELS else "leave-one-out"
    return [path for path in datasets if Manifest.read(path).protocol.startswith(wanted)]

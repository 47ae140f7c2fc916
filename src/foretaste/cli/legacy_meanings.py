"""What an option of the reference scripts may come to in our words."""

from __future__ import annotations

from pathlib import Path

from foretaste.cli.legacy_line import Line, Meaning
from foretaste.cli.legacy_notes import forbids_tf32
from foretaste.cli.legacy_paths import (
    dataset_below,
    default_dataset,
    model_settings_of_run,
    place_in,
    raw_ml_20m,
    root_to_fill,
    run_of,
    shape_of_dataset,
    shape_of_run,
    successor_of,
    would_be_replaced,
)
from foretaste.errors import SettingError

_QUERY_LENGTH = 10
"""Items of the one user of ``--inference_benchmark``."""


def says(option: str, value: str = "{}") -> Meaning:
    """One of our options, and what its value becomes."""

    def meaning(line: Line, written: str, given: str) -> None:
        line.add(written, option, value.format(given))

    return meaning


def turns_on(option: str) -> Meaning:
    """One of our flags."""

    def meaning(line: Line, written: str, given: str) -> None:
        line.add(written, option)

    return meaning


def run_has(name: str) -> Meaning:
    """A setting of the model, which the run must have been trained with."""

    def meaning(line: Line, written: str, given: str) -> None:
        line.described.append((written, name, given))

    return meaning


def left_aside(line: Line, written: str, given: str) -> None:
    """Nothing, and that is said."""
    line.left_aside.append(written)


def half_precision(line: Line, written: str, given: str) -> None:
    """bf16 where the device computes it, else fp16; a fixed loss scale asks for fp16."""
    if line.said_by("--precision") == "--loss-scale":
        return
    from foretaste.ops.device import resolve_device
    from foretaste.training.precision import half_precision as computed_on

    device = resolve_device(line.value_of("--device") or "auto")
    line.add(written, "--precision", computed_on(device))


def fixed_loss_scale(line: Line, written: str, given: str) -> None:
    """fp16 with that scale."""
    line.add(written, "--loss-scale", given)
    if not line.says("--precision"):
        line.add(written, "--precision", "fp16")


def the_source(line: Line, written: str, given: str) -> None:
    """What the command is about."""
    line.put(written, given)


def the_dataset(line: Line, written: str, given: str) -> None:
    """The same; what `prepare` made of it where the scripts' own folder is not there."""
    line.put(written, _found(line, written, given))


def the_run(line: Line, written: str, given: str) -> None:
    """What the command is about, by a checkpoint's name."""
    line.put(written, run_of(given))


def start_from(line: Line, written: str, given: str) -> None:
    """A run whose weights to begin with."""
    line.add(written, "--from", run_of(given))


def dataset_in(line: Line, written: str, given: str) -> None:
    """The only dataset there, or the one that is named."""
    named = line.take_place()
    line.put(written, dataset_below(given, line.script_model, named))


def other_dataset(line: Line, written: str, given: str) -> None:
    """Where the dataset of a run is."""
    line.add(written, "--dataset", _found(line, written, given))


def other_dataset_in(line: Line, written: str, given: str) -> None:
    """Where the dataset of a run is, the only one there."""
    line.add(written, "--dataset", dataset_below(given, line.script_model))


def prepared_as_in_the_guides() -> tuple[list[list[str]], list[str]]:
    """What a mere ``prepare`` stands for: MovieLens 20M for either script; and a note on it."""
    root = root_to_fill()
    ncf = place_in(str(root / "cache"), "ml-20m")
    raw = raw_ml_20m(str(root))
    source = ["prepare", "ml-20m", *(("--source-dir", raw) if raw else ())]
    lines = [
        [*source, "--validation", "none", "--output", str(ncf)],
        [*source, "--protocol", "held-out-users", "--output", str(place_in(str(root), "ml-20m"))],
    ]
    return lines, [
        "no SOURCES: MovieLens 20M is prepared for NCF and for the VAE, as NVIDIA's guides do; "
        f"both below {root}"
    ]


def prepared_in(line: Line, written: str, given: str) -> None:
    """Where the dataset goes; of MovieLens 20M and the VAE's split where nothing is named."""
    source = line.given_place()
    if source is None:
        source = "ml-20m"
        line.put(written, source)
        if not line.says("--protocol"):
            line.add(written, "--protocol", "held-out-users")
        if (raw := raw_ml_20m(given)) and not line.says("--source-dir"):
            line.add(written, "--source-dir", raw)
    line.add(written, "--output", str(place_in(given, Path(source).name.partition(".")[0])))


def shape_of(line: Line, written: str, given: str) -> None:
    """Generated data of a dataset's size; the dataset itself for the time to a target."""
    dataset = _found(line, written, given)
    line.add(written, "--shape", shape_of_dataset(dataset))
    if line.command.verb == "bench train" and line.says("--target"):
        line.add(written, "--dataset", dataset)


def shape_of_only_dataset(line: Line, written: str, given: str) -> None:
    """The same of the only dataset there."""
    shape_of(line, written, dataset_below(given, line.script_model))


def sizes_of(line: Line, written: str, given: str) -> None:
    """A run's sizes: its weights change nothing about speed."""
    run = run_of(given)
    model, settings = model_settings_of_run(run)
    if model != line.command.model:
        raise SettingError(f"{written} {run} is a run of {model}, not of {line.command.model}")
    sizes = {"--shape": shape_of_run(run)}
    for name in sorted(settings.keys() & {"factors", "layers", "hidden", "latent"}):
        value = settings[name]
        sizes[f"--{name}"] = ",".join(map(str, value if isinstance(value, list) else [value]))
    for option, value in sizes.items():
        if not line.says(option):
            line.add(written, option, value)


def measured_epochs(line: Line, written: str, given: str) -> None:
    """Epochs to measure: those after the warm-up, which the scripts count among them."""
    warm_up = line.value_of("--warmup") or "1"
    if not (given.isdecimal() and warm_up.isdecimal()):
        line.add(written, "--repeats", given)
        return
    line.add(written, "--repeats", str(max(1, int(given) - int(warm_up))))


def one_random_user(line: Line) -> None:
    """The scripts' query: one user at a time, of ten random items where no data are named."""
    written = "--inference_benchmark"
    if not line.says("--batch-sizes"):
        line.add(written, "--batch-sizes", "1")
    are_data_named = line.says("--shape") and line.said_by("--shape") not in _RUNS
    if not are_data_named and not line.says("--history-length"):
        line.add(written, "--history-length", str(_QUERY_LENGTH))
    if not line.says("--shape"):
        line.add(written, "--shape", "ml-20m")


_RUNS = ("--checkpoint-dir", "--checkpoint_dir", "--load-checkpoint-path")


def as_theirs_trained(line: Line) -> None:
    """What the scripts took where nothing is said: the data, and the precision of products."""
    if line.command.verb == "train" and line.place is None and line.given_place() is None:
        line.place = default_dataset(line.command.model)
        line.notes.append(f"no DATASET: {line.place} is taken")
    if line.command.verb in ("train", "bench train") and line.command.model != "gmf":
        _take_tf32(line)
    if line.command.verb == "train":
        replace_as_theirs(line)


def replace_as_theirs(line: Line) -> None:
    """Run, log and results are written over, as the scripts did; not a run of another model."""
    run = line.value_of("--run")
    taken = would_be_replaced(run, line.value_of("--log-path"), line.value_of("--results-dir"))
    is_other = run in taken and model_settings_of_run(run)[0] != line.command.model
    if taken and not is_other and not line.says("--overwrite"):
        line.add("the script", "--overwrite")
        line.notes.append(f"{', '.join(taken)}: replaced once this is finished (--overwrite)")


def _take_tf32(line: Line) -> None:
    """tf32 where the device computes it, as TensorFlow did there; else fp32, our default."""
    device = line.value_of("--device") or "auto"
    if line.says("--precision") or device == "cpu" or forbids_tf32():
        return
    from foretaste.ops.device import resolve_device
    from foretaste.training.precision import computes_tf32

    if computes_tf32(resolve_device(device)):
        line.add("the default", "--precision", "tf32")
        line.notes.append(
            "no --amp: products are computed in tf32, as theirs were on this GPU; --precision fp32 "
            "computes them in full"
        )


def _found(line: Line, written: str, path: str) -> str:
    """A dataset that is there; what stands for it where the scripts' own folder is not."""
    found = successor_of(path, line.script_model)
    if found is None:
        return path
    line.notes.append(f"{written} {path} is not there: {found} is taken")
    return found

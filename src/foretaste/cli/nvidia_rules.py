"""A command line of NVIDIA's scripts in translation, and its rules that need more than a name."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from foretaste.cli.arguments import SHORT_NAMES
from foretaste.data.manifest import FILE_NAME, Manifest, is_dataset
from foretaste.errors import SettingError
from foretaste.runs.files import CONFIG

NCF_MODELS = ("neumf", "gmf", "mlp")
VAE_MODELS = ("vae", "dae")
"""Models of the two scripts."""

FLAGS = {
    *("--amp", "--fp16", "--xla", "--no-neg-trick", "--verbose", "--trace"),
    *("--train", "--test", "--inference-benchmark"),
    *("--tensorboard", "--overwrite", "--verified-negatives", "--cuda-graphs"),
    *("--more", "--search", "--quiet", "-q"),
}
"""Options without a value, of the scripts and of foretaste."""

DATA = Path("/data")
"""The scripts' folder of data, which is mounted in their containers."""

_NUMBERS = re.compile(r"-?[0-9.]+(,-?[0-9.]+)*,?|\w+@[0-9]+")
"""A number, a list of numbers with commas, or a metric: words that are no place."""

LONG_NAMES = {short: f"--{name.replace('_', '-')}" for name, short in SHORT_NAMES.items()}


class Word(NamedTuple):
    """An option of a command line with its value, or another word, such as a dataset."""

    written: str
    name: str
    """The option with hyphens for underscores; empty for another word."""
    value: str
    """Empty for a flag; numbers of a list have spaces between them."""
    tokens: Sequence[str] = ()


def words_of(tokens: Sequence[str]) -> list[Word]:
    """Return the words of a command line; ``--layers 256 128`` is one, and so is ``--k=5``."""
    words, rest = [], list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("-") or _NUMBERS.fullmatch(token):
            words.append(Word(token, "", token, [token]))
            continue
        written, equals, value = token.partition("=")
        name = written.replace("_", "-") if written.startswith("--") else written
        values: list[str] = []
        if not (equals or name in FLAGS or name.startswith("--no-")):
            values = [rest.pop(0)] if rest and not rest[0].startswith("--") else []
            while rest and _NUMBERS.fullmatch(rest[0]):
                values.append(rest.pop(0))
        words.append(Word(written, name, value or " ".join(values), [token, *values]))
    return words


def take_options(names: Collection[str], words: list[Word]) -> list[Word]:
    """Remove the options of these names from ``words``; returns them."""
    taken = [word for word in words if word.name in names]
    words[:] = [word for word in words if word.name not in names]
    for word in taken:
        if not word.value and word.name not in FLAGS:
            raise SettingError(f"{word.written} needs a value")
    return taken


@dataclass
class Line:
    """Our command line under construction; no option is given twice."""

    verb: str
    """``train``, ``evaluate``, ``prepare`` or ``bench recommend``."""
    model: str
    """The model of the typed command; empty if it has none."""
    kept: list[Word]
    """Words that need no translation."""
    added: dict[str, Word] = field(default_factory=dict)
    """Our options that are added, each with the written option behind it, and its value."""
    place: str | None = None
    """The dataset or run before the options, or the source if it comes from an option."""
    ignored: list[str] = field(default_factory=list)
    """Written options that mean nothing to the command."""
    notes: list[str] = field(default_factory=list)
    """Notes on data and settings that were chosen."""

    def __post_init__(self) -> None:
        word = self._kept_place()
        if word is not None and self.verb != "prepare":  # which may have several sources
            self.kept.remove(word)
            self.place = word.value

    def _kept_place(self) -> Word | None:
        places = (w for w in self.kept if not w.name and not _NUMBERS.fullmatch(w.value))
        return next(places, None)

    def named_place(self) -> str | None:
        """Return the dataset, run or source that the line names."""
        word = self._kept_place()
        return self.place if word is None or self.place else word.value

    def given(self, option: str) -> Word:
        """Return the written option behind one of ours, and its value; empty if there is none."""
        kept = (word for word in self.kept if LONG_NAMES.get(word.name, word.name) == option)
        return self.added.get(option) or next(kept, Word("", "", ""))

    def has(self, option: str) -> bool:
        return bool(self.given(option).name)

    def add(self, written: str, option: str, value: str = "") -> None:
        """Add an option or a place; SettingError if another one was given before."""
        if not option.startswith("-"):
            taken = self.named_place()
            if taken not in (None, value):
                raise SettingError(f"{written} {value} and {taken} differ; leave out one of them")
            self.place = value if taken is None else self.place
            return
        if self.given(option)[::2] == (written, value):
            return
        for name in (option, f"--no-{option.removeprefix('--')}"):
            if other := self.given(name).written:
                raise SettingError(
                    f"{other} and {written} both set {option}; leave out one of them"
                )
        self.added[option] = Word(written, written.replace("_", "-"), value)

    def add_missing(self, written: str, **settings: str) -> str:
        """Add the settings that the line does not have; returns the added ones, as typed."""
        options = {f"--{name.replace('_', '-')}": value for name, value in settings.items()}
        missing = {option: value for option, value in options.items() if not self.has(option)}
        for option, value in missing.items():
            self.add(written, option, value)
        return " ".join(f"{option} {value}" for option, value in missing.items())

    def tokens(self) -> list[str]:
        """Return the whole command line."""
        model = "" if self.verb == "evaluate" else self.model
        kept = chain.from_iterable(word.tokens for word in self.kept)
        added = chain.from_iterable((option, word.value) for option, word in self.added.items())
        return [*self.verb.split(), *filter(None, (model, self.place, *kept, *added))]


# Rules of options. The documentation shows their docstrings.


def ignore(line: Line, given: Word) -> None:
    """Ignore it, with a note."""
    line.ignored.append(given.written)


def half_precision(line: Line, given: Word) -> None:
    """Use `--precision bf16` if the device computes it, otherwise fp16 with a scale that adapts."""
    if line.given("--precision").name in ("--loss-scale", "--amp", "--fp16"):
        return  # --loss-scale wins, so it is handled before; the other two are one option
    from foretaste.ops.device import resolve_device
    from foretaste.training.precision import half_precision as computed_on

    device = resolve_device(line.given("--device").value or "auto")
    line.add(given.written, "--precision", computed_on(device))


def fixed_loss_scale(line: Line, given: Word) -> None:
    """Use `--precision fp16` with this scale, which wins over `--amp`."""
    line.add(given.written, "--loss-scale", given.value)
    line.add_missing(given.written, precision="fp16")


def sizes(line: Line, given: Word) -> None:
    """Set `--shape` to its sizes."""
    manifest = Manifest.read(Path(given.value))
    shape = manifest.num_train_users, manifest.num_items, manifest.num_interactions
    line.add(given.written, "--shape", "x".join(map(str, shape)))


def source(line: Line, given: Word) -> None:
    """Prepare it, as SOURCES, with the script's split and filters."""
    line.add(given.written, "SOURCES", given.value)
    split_as_theirs(line)


def prepared_in(line: Line, given: Word) -> None:
    """Set `--output` to a folder below it; without SOURCES prepare ml-20m with the VAE's split."""
    name = line.named_place()
    if name is None:
        name = "ml-20m"
        line.add(given.written, "SOURCES", name)
        line.add_missing(given.written, protocol="held-out-users")
        raw = Path(given.value, "ml-20m", "extracted", "ml-20m")  # unpacked there by their guide
        if raw.is_dir():
            line.add_missing(given.written, source_dir=str(raw))
    place = _place_in(Path(given.value), Path(name).name.partition(".")[0])
    line.add(given.written, "--output", str(place))


# Converters of values


def run_of(line: Line, path: str) -> str:
    """Return the run of a checkpoint's path: RUN for ``RUN/model.ckpt``."""
    checkpoint = Path(path)
    return str(checkpoint.parent) if ".ckpt" in checkpoint.name else path


def dataset_in(line: Line, directory: str) -> str:
    """Return the only dataset in a directory; for a training, the one that is named."""
    root, name = Path(directory), line.place
    if name is None or line.verb != "train":
        missing = (
            f"--data-dir {root} has no dataset in it; make one: foretaste prepare ml-20m "
            f"--protocol held-out-users --data-dir {root}"
        )
        return _only_dataset([root], line.model, missing)
    line.place, place = None, _place_in(root, name)
    if not is_dataset(place):
        raise SettingError(
            f"{place} is not a dataset; make it: foretaste prepare {name} --data-dir {root}"
        )
    return str(place)


# Rules of whole lines


def split_as_theirs(line: Line) -> None:
    """Prepare raw data as a model's script does; the NCF paper's three files are split already."""
    from foretaste.data.preparation.inputs import as_given_split

    if as_given_split(line.named_place()) is None and (
        added := line.add_missing("the script", protocol=_protocol(line.model), filters="reference")
    ):
        line.notes.append(f"the data are prepared as NVIDIA's script did it: {added}")


def train_as_theirs(line: Line) -> None:
    """Add the scripts' defaults: dataset, schedule, split of raw data, and overwriting."""
    from foretaste.data.movielens import NAMED_SETS

    place = line.named_place()
    if place is None:
        missing = (
            f"DATASET is needed and not given, and neither {DATA} nor datasets has a dataset in "
            "it; make one: foretaste prepare ml-20m"
        )
        place = line.place = _only_dataset([DATA, Path("datasets")], line.model, missing)
        line.notes.append(f"no DATASET: {place} is taken")
    line.add_missing("the default", learning_rate_schedule="constant")
    if place in NAMED_SETS or (Path(place).exists() and not is_dataset(Path(place))):
        split_as_theirs(line)
    replace_as_theirs(line)


def replace_as_theirs(line: Line) -> None:
    """Overwrite run, log and results, as the scripts did, unless the run is of another model."""
    from foretaste._util.files import remove_leftovers
    from foretaste.runs.config import read_run_config
    from foretaste.training.logs import existing_results

    run, log, results = (
        line.given(name).value for name in ("--run", "--log-path", "--results-dir")
    )
    taken = []
    if run:
        remove_leftovers(Path(run))  # puts a run back that a kill had between two names
        if (config := Path(run, CONFIG)).is_file():
            if read_run_config(config).model != line.model:
                return
            taken.append(f"{run} (once the new training is finished)")
    if log and Path(log).is_file() and Path(log).stat().st_size > 0:
        taken.append(log)
    if results and existing_results(Path(results)):
        taken.append(results)
    if taken and not line.has("--overwrite"):
        line.add("the script", "--overwrite")
        line.notes.append(f"{', '.join(taken)}: replaced (--overwrite)")


# Datasets in folders


def _only_dataset(roots: Sequence[Path], model: str, missing: str) -> str:
    """Return the only dataset of the first of these folders with any.

    If a folder has several, the only one with the protocol of the model's script counts.
    SettingError, with the text ``missing``, if there is no such dataset, or several.
    """
    root, found = next(
        ((one, found) for one in roots if (found := _datasets_below(one))), (None, [])
    )
    if len(found) > 1:
        wanted = _protocol(model)
        found = [path for path in found if Manifest.read(path).protocol.startswith(wanted)] or found
    if len(found) == 1:
        return str(found[0])
    names = ", ".join(sorted(map(str, found)))
    raise SettingError(
        f"the folder {root} has several datasets; name one: {names}" if found else missing
    )


def _datasets_below(root: Path) -> list[Path]:
    """Return the datasets at most two folders below a directory, without hidden folders."""
    found = chain.from_iterable(root.glob(depth + FILE_NAME) for depth in ("", "*/", "*/*/"))
    return [path.parent for path in found if "/." not in f"/{path.relative_to(root).as_posix()}"]


def _place_in(root: Path, name: str) -> Path:
    """Return the place of the dataset ``name`` in a directory, beside raw files of that name."""
    place = root / name
    is_taken = place.is_dir() and not is_dataset(place)
    return place / "prepared" if is_taken else place


def _protocol(model: str) -> str:
    """Return the protocol of the data of a model's script."""
    return "held-out-users" if model in VAE_MODELS else "leave-one-out"

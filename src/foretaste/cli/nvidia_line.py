"""A command line of NVIDIA's scripts in translation: its options are removed and ours added."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from foretaste.cli.arguments import SHORT_NAMES
from foretaste.errors import SettingError

FLAGS = frozenset(
    {
        *("--amp", "--fp16", "--xla", "--no-neg-trick", "--verbose", "--trace"),
        *("--train", "--test", "--inference-benchmark"),
        *("--tensorboard", "--overwrite", "--verified-negatives", "--cuda-graphs"),
        *("--more", "--search", "--quiet", "-q"),
    }
)
"""Options without a value, of the scripts and of foretaste."""

NCF_MODELS = ("neumf", "gmf", "mlp")
VAE_MODELS = ("vae", "dae")
"""Models of the two scripts."""

_NUM_WORDS = {"train": 2, "evaluate": 1, "prepare": 1}

_MODELS: Mapping[str, tuple[str | None, ...]] = {
    "train": (*NCF_MODELS, *VAE_MODELS),
    **dict.fromkeys(("evaluate", "prepare"), (None,)),
}
"""Models of the commands that the scripts had, by verb; None for a command without a model."""

_NUMBERS = re.compile(r"-?[0-9.]+(,-?[0-9.]+)*,?")
_METRIC = re.compile(r"\w+@[0-9]+")

_SAME_OPTION = {"--amp", "--fp16"}
"""Two names of one option of the scripts."""

_LONG_NAMES = {short: f"--{name.replace('_', '-')}" for name, short in SHORT_NAMES.items()}


@dataclass(frozen=True)
class Command:
    """The words of a command before its first option."""

    verb: str
    """``train``, ``evaluate``, ``prepare``, or ``bench recommend``, which replaces ``train``."""

    model: str | None = None

    @classmethod
    def of(cls, tokens: Sequence[str]) -> Command | None:
        """The command of a command line; None if the scripts had no such command."""
        words = tokens[: _NUM_WORDS.get(tokens[0], 0)] if tokens else ()
        if not words or any(word.startswith("-") for word in words):
            return None
        found = cls(words[0]) if len(words) == 1 else cls(" ".join(words[:-1]), words[-1])
        return found if found.model in _MODELS.get(found.verb, ()) else None

    @property
    def words(self) -> list[str]:
        return [*self.verb.split(), *([self.model] if self.model else [])]


@dataclass(frozen=True)
class Option:
    """An option of the scripts on a command line."""

    written: str
    name: str
    """The written name with hyphens for underscores."""
    value: str
    """The value; empty for a flag. Numbers of a list have spaces between them."""


def take_options(names: Collection[str], tokens: list[str]) -> list[Option]:
    """Remove the options of these names, with their values, from ``tokens``; returns them."""
    taken, kept = [], []
    while tokens:
        token = tokens.pop(0)
        name = canonical(token)
        if name not in names:
            kept.append(token)
            continue
        written, equals, value = token.partition("=")
        if name == "--layers" and not equals:
            numbers = list(takewhile(_NUMBERS.fullmatch, tokens))
            del tokens[: len(numbers)]
            value = " ".join(numbers)
        elif name not in FLAGS and not equals:
            if not tokens or tokens[0].startswith("--"):
                raise SettingError(f"{written} needs a value")
            value = tokens.pop(0)
        taken.append(Option(written, name, value))
    tokens += kept
    return taken


def canonical(token: str) -> str:
    """The name of an option with hyphens, without a value after an equals sign."""
    name = token.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def long_name(token: str) -> str:
    """The long name of an option."""
    name = canonical(token)
    return _LONG_NAMES.get(name, name)


@dataclass
class Line:
    """Our command line under construction; no option is given twice."""

    command: Command
    script_model: str | None
    """The model of the typed command; the final command may have none."""
    kept: list[str]
    """Tokens that need no translation."""
    added: list[str] = field(default_factory=list)
    place: str | None = None
    """The dataset, run or source before the options."""
    idle: list[str] = field(default_factory=list)
    """Options that this command ignores."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user on data and settings that were chosen."""
    _options: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Our options by name, each with the written option it came from and its value."""

    def __post_init__(self) -> None:
        for number, token in enumerate(self.kept):
            if token.startswith("-"):
                written, equals, value = token.partition("=")
                following = next(iter(self.kept[number + 1 :]), None)
                entry = (written, value if equals else following)
                self._options.setdefault(long_name(token), entry)

    def has(self, option: str) -> bool:
        return option in self._options

    def written_for(self, option: str) -> str | None:
        """The written option behind one of our options; None if it is not given."""
        return self._options.get(option, (None, None))[0]

    def value_of(self, option: str) -> str | None:
        return self._options.get(option, (None, None))[1]

    def kept_place(self) -> str | None:
        """The dataset, run or source among the kept tokens."""
        number = self._number_of_place()
        return None if number is None else self.kept[number]

    def take_place(self) -> str | None:
        """The place of `kept_place`, which is removed from the kept tokens."""
        number = self._number_of_place()
        return None if number is None else self.kept.pop(number)

    def _number_of_place(self) -> int | None:
        """The index of the first kept word that is no option, value, number or metric."""
        takes_value = False
        for number, token in enumerate(self.kept):
            if _NUMBERS.fullmatch(token) or _METRIC.fullmatch(token):
                takes_value = False
            elif token.startswith("-"):
                name = canonical(token)
                takes_value = not ("=" in token or name in FLAGS or name.startswith("--no-"))
            elif not takes_value:
                return number
            else:
                takes_value = False
        return None

    def add(self, written: str, option: str, value: str | None = None) -> None:
        """Add an option or a place; SettingError if another one was given before."""
        if value is not None and not option.startswith("-"):
            taken = self.place or self.kept_place()
            if taken not in (None, value):
                raise SettingError(f"{written} {value} and {taken} differ; leave out one of them")
            self.place = value if taken is None else self.place
            return
        before, value_before = self._options.get(option, (written, None))
        is_same = before == written or {before, written} == _SAME_OPTION
        if self.has(option) and is_same and value_before == value:
            return
        for name in (option, f"--no-{option.removeprefix('--')}"):
            if other := self.written_for(name):
                raise SettingError(
                    f"{other} and {written} both set {option}; leave out one of them"
                )
        self._options[option] = (written, value)
        self.added += [option] if value is None else [option, value]

    def tokens(self) -> list[str]:
        """The whole command line."""
        place = [] if self.place is None else [self.place]
        return [*self.command.words, *place, *self.kept, *self.added]

"""Command lines as words: what they begin with, and options taken out of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foretaste.cli.arguments import take_numbers
from foretaste.errors import SettingError

NCF_MODELS = ("neumf", "gmf", "mlp")
VAE_MODELS = ("vae", "dae")
"""Models of the two scripts."""

FLAGS = frozenset(
    {
        *("--amp", "--fp16", "--xla", "--no-neg-trick", "--verbose", "--trace"),
        *("--train", "--test", "--inference-benchmark"),
        *("--compile", "--tensorboard", "--overwrite", "--verified-negatives", "--cuda-graphs"),
        *("--quiet", "-q", "--definitions"),
    }
)
"""Options of the scripts, and of ours beside them, that take no value."""

_LIST = "--layers"
"""The option of the scripts that takes several numbers."""

_NUM_WORDS = {"train": 2, "bench": 3, "evaluate": 1, "prepare": 1}


@dataclass(frozen=True)
class Command:
    """What the words before the first option name."""

    words: tuple[str, ...]
    """``train neumf``, ``evaluate``, ``bench inference vae`` or ``prepare``."""

    @classmethod
    def of(cls, tokens: Sequence[str]) -> Command | None:
        """The command of a command line; None where the scripts had none like it."""
        words = tuple(tokens[: _NUM_WORDS.get(tokens[0], 0)]) if tokens else ()
        if not words or any(word.startswith("-") for word in words):
            return None
        return cls(words)

    @property
    def verb(self) -> str:
        """``train``, ``evaluate``, ``bench inference``, ..."""
        return " ".join(self.words[:-1]) if len(self.words) > 1 else self.words[0]

    @property
    def model(self) -> str | None:
        return self.words[-1] if len(self.words) > 1 else None


@dataclass(frozen=True)
class Given:
    """An option of the scripts, as it was found."""

    written: str
    name: str
    """The same with hyphens for underscores."""
    value: str
    """Empty for a flag; numbers of a list with spaces between them."""


def canonical(token: str) -> str:
    """The name of an option as we write it, without a value that follows an equals sign."""
    name = token.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def take(names: Collection[str], tokens: list[str]) -> list[Given]:
    """Remove the options that have these names, with their values, from ``tokens``."""
    taken, kept = [], []
    while tokens:
        token = tokens.pop(0)
        name = canonical(token)
        if name not in names:
            kept.append(token)
            continue
        written, equals, value = token.partition("=")
        if name not in FLAGS and not equals:
            value = _take_value(name, written, tokens)
        taken.append(Given(written, name, value))
    tokens += kept
    return taken


def _take_value(name: str, written: str, tokens: list[str]) -> str:
    if name == _LIST:
        return " ".join(take_numbers(tokens))
    if not tokens or tokens[0].startswith("--"):
        raise SettingError(f"{written} needs a value")
    return tokens.pop(0)

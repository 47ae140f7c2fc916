"""Rules of every command line: short names, lists, whole numbers, and messages for mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import takewhile
from typing import TYPE_CHECKING, Any, get_args

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from foretaste._util.formatting import spelled_like
from foretaste.models.registry import MODEL_NAMES

if TYPE_CHECKING:
    from cyclopts import ArgumentCollection
    from cyclopts.field_info import FieldInfo

SHORT_NAMES = {
    "epochs": "-e",
    "batch_size": "-b",
    "factors": "-f",
    "negatives": "-n",
    "learning_rate": "-l",
    "k": "-k",
    "seed": "-s",
    "target": "-t",
    "output": "-o",
    "quiet": "-q",
}
"""Settings that have a short name."""

NUMBER_LISTS = frozenset({"--layers", "--hidden", "--k", "-k", "--history-lengths", "--weights"})
"""Options that take several numbers."""

NAME_LISTS = frozenset({"--columns", "--items-columns"})
"""Options that take several names, with commas between them."""

METRIC_LISTS = frozenset({"--metric", "-m"})
"""Options that take several metrics, such as ndcg@10."""

ID_LISTS = {
    "recommend": frozenset({"--user", "--history", "--exclude", "--candidates"}),
    "similar": frozenset({"--item"}),
    "compete": frozenset({"--models"}),
}
"""Options that take several ids or names, by the command."""

_NUMBERS = re.compile(r"-?[0-9.]+(,-?[0-9.]+)*,?")
_METRIC = re.compile(r"\w+@[0-9]+")


def _short_name(field: FieldInfo, taken: frozenset[str]) -> str | None:
    name = SHORT_NAMES.get(field.name)
    return None if name in taken else name


def _as_typed(default: Any) -> str | None:
    """A default as one would give it; None, which is not shown, for one that is none."""
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or None
    return None if default is None else str(default)


DEFAULTS = Parameter(short_alias=_short_name, negative_iterable=(), show_default=_as_typed)
"""Rules of every option of every command."""

FLAG = Parameter(negative="", show_default=False)
"""An option that is given or not, without a value."""


def spread_lists(tokens: Sequence[str]) -> list[str]:
    """The command line with each number, name, metric or id of a list behind an option of its own.

    ``--layers 64 32`` and ``--layers 64,32`` become ``--layers 64 --layers 32``, so that a list
    ends where its numbers do and never swallows what follows; metrics likewise. An id may be any
    word: ids go on to the next option where the run stands before all options, and else end with
    the first.
    """
    rest = list(tokens)
    verb, place, *_ = (*tokens, "-", "-")
    belongs: dict[str, Callable[[str], bool]] = dict.fromkeys(METRIC_LISTS, is_metric)
    if not place.startswith("-"):
        for name in ID_LISTS.get(verb, ()):
            belongs[name] = lambda word: not word.startswith("-") or is_numbers(word)
    spread: list[str] = []
    while rest:
        token = rest.pop(0)
        name, equals, value = token.partition("=")
        values = []
        if name in NUMBER_LISTS:
            values = [value] if equals else take_numbers(rest)
        if values:
            numbers = [number for part in values for number in part.strip(",").split(",")]
            spread += [part for number in numbers for part in (name, number)]
        elif name.replace("_", "-") in NAME_LISTS and (equals or rest):
            names = value if equals else rest.pop(0)
            # A name may be a mere -, which only stands behind an equals sign.
            spread += [f"{name}={part}" for part in names.split(",")]
        elif name in belongs and not equals:
            words = _take(rest, belongs[name])
            spread += [part for word in words for part in (name, word)] or [name]
        else:
            spread.append(token)
    return spread


def take_numbers(rest: list[str]) -> list[str]:
    """Remove and return the numbers that ``rest`` begins with."""
    return _take(rest, is_numbers)


def _take(rest: list[str], belongs: Callable[[str], bool]) -> list[str]:
    taken = list(takewhile(belongs, rest))
    del rest[: len(taken)]
    return taken


def is_numbers(word: str) -> bool:
    return _NUMBERS.fullmatch(word) is not None


def is_metric(word: str) -> bool:
    return _METRIC.fullmatch(word) is not None


def check_whole_numbers(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse 3.5 where a whole number belongs; the parser would round it to 4."""
    for argument in arguments:
        kinds = kinds_of(argument.hint)
        if int in kinds and float not in kinds:
            for token in argument.tokens:
                if "." in token.value:
                    raise CoercionError(argument=argument, token=token, target_type=int)


_given: ContextVar[frozenset[str]] = ContextVar("given", default=frozenset())
"""Names of the settings that the command line gives."""


def note_given(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Remember which settings the command line gives, for `given_settings`."""
    _given.set(frozenset(argument.field_info.name for argument in arguments if argument.tokens))


def given_settings(config: Any) -> dict[str, Any]:
    """The settings of a config that the command line gives; a config has the others by default."""
    if config is None:
        return {}
    return {name: value for name, value in vars(config).items() if name in _given.get()}


def kinds_of(hint: Any) -> set[Any]:
    """The types and values that a hint is made of: ``int | Literal["auto"]`` has int and auto."""
    return {hint}.union(*(kinds_of(inner) for inner in get_args(hint)))


_OTHER_NAMES = {"--lr": "--learning-rate"}
"""Options by the names that other programs have for them."""

_NOWHERE = {
    "--weight-column": "No model here weighs rows: an interaction happened or it did not, whatever "
    "its rating or count. --rating-column COLUMN --min-rating N leaves low ones out.",
}
"""Options that other programs have, and the reason why there are none here."""


_KEEPS_SETTINGS = {
    "--resume": "A training goes on with the settings that it began with. To train its weights "
    "further with others, begin a new one: foretaste train MODEL DATASET --from RUN",
    "--like": "A run is repeated with the settings that it has. To change some, give all of your "
    "own: foretaste train MODEL DATASET",
}
"""Commands of train that take no options of a model, and the ones that do."""


def explained(app: App, error: CycloptsError) -> str:
    """The message for a command line of ``app`` that cannot be read, and where help is."""
    words = ["foretaste", *(error.command_chain or ())]
    unused = " ".join(error.unused_tokens or ())
    message = str(error)
    if isinstance(error, UnknownOptionError):
        message = _unknown_option(app, words, error)
    elif isinstance(error, UnknownCommandError):
        model = unused.partition(" ")[0]
        message = _unknown_command(app, words, model, message)
        if words[-1] == "tune" and model in MODEL_NAMES:
            message = f"{model} has no settings to search: foretaste train {model} fits it."
    elif isinstance(error, CoercionError):
        kinds = kinds_of(error.argument.hint) if error.argument is not None else set()
        number = "a number" if float in kinds else "a whole number" if int in kinds else None
        if number is not None and error.token is not None and error.token.keyword is not None:
            auto = " or auto" if "auto" in kinds else ""
            message = f"{error.token.keyword} takes {number}{auto}, not {error.token.value!r}."
    elif isinstance(error, MissingArgumentError):
        assert error.argument is not None
        stray = f", and nothing is known to do with {unused!r}" if unused else ""
        message = f"{error.argument.name} is needed and not given{stray}."
        if error.keyword is not None:
            message = f"{error.keyword} needs a value."
    elif isinstance(error, UnusedCliTokensError):
        message = f"Nothing is known to do with {unused!r}."
        if words[-1] in ID_LISTS:
            message += (
                " For several ids put the run first and the ids after one option, or repeat the"
            )
            message += " option before each id; after an equals sign stands one id."
    return f"{message}\nSee {' '.join(words)} --help."


def _unknown_command(app: App, words: list[str], command: str, message: str) -> str:
    """Cyclopts' message, with the command that is written so but for case where it names none."""
    for word in words[1:]:
        app = app[word]
    meant = spelled_like(command, [name for name in app if not name.startswith("-")])
    if not meant or "Did you mean" in message:
        return message
    return message.replace(f'"{command}".', f'"{command}". Did you mean "{meant[0]}"?', 1)


def _unknown_option(app: App, words: list[str], error: UnknownOptionError) -> str:
    """The message for an option that the command of these words lacks: where it belongs, or which
    is spelled like it."""
    option = (error.token.keyword or error.token.value).replace("_", "-")
    if option in _NOWHERE:
        return f"Unknown option: {option}. {_NOWHERE[option]}"
    ours = _OTHER_NAMES.get(option)
    if any(ours in argument.names for argument in error.argument_collection):
        return f"Unknown option: {option}. Say {ours}."
    place = option.removeprefix("--").upper()
    if any(place == argument.name for argument in error.argument_collection):
        return f"Unknown option: {option}. Give it without a name: {' '.join(words)} {place}."
    for word in words[1:-1]:
        app = app[word]
    beside = " ".join(words[:-1])
    if option in list(app):
        return f"{option} is a command of its own: begin with {beside} {option}."
    owners = []
    for name in app:
        if not name.startswith("-") and app[name].default_command is not None:
            arguments = app[name].assemble_argument_collection(default_parameter=DEFAULTS)
            if any(option in argument.names for argument in arguments if argument.parse):
                owners.append(name)
    names = [
        name for argument in error.argument_collection if argument.parse for name in argument.names
    ]
    longer = [name for name in names if name.startswith(f"{option}-")]
    # Without the dashes that all have.
    bare = {name.lstrip("-"): name for name in names}
    like = spelled_like(option.lstrip("-"), bare, similarity=0.75)
    meant = dict.fromkeys(longer + [bare[name] for name in like])
    suggestion = f" Did you mean {' or '.join(meant)}?" if meant else ""
    if not owners:
        return f"Unknown option: {option}.{suggestion}"
    if words[-1] in _KEEPS_SETTINGS:
        instead = _KEEPS_SETTINGS[words[-1]]
        example = f"{instead} ..." if option in instead.split() else f"{instead} {option} ..."
        return f"Unknown option: {option}. {example}"
    belongs = f"which belongs to {beside} {', '.join(owners)}."
    return f"Unknown option: {option}, {belongs}{suggestion if longer else ''}"

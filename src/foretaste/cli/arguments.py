"""Rules of all command lines: short names, lists, whole numbers, and messages for mistakes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

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

from foretaste._util.formatting import similar_names
from foretaste._util.other_names import translate_name
from foretaste._util.settings import Threads, validate
from foretaste.models.registry import MODEL_NAMES, config_class

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
"""Short option names of settings."""


def _short_name(field: FieldInfo, taken: frozenset[str]) -> str | None:
    name = SHORT_NAMES.get(field.name)
    return None if name in taken else name


def _format_default(default: object) -> str | None:
    """Return a default as the command line spells it; None, hidden in help, without a default."""
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or None
    return None if default is None else str(default)


DEFAULTS = Parameter(
    short_alias=_short_name,
    negative_iterable=(),
    show_default=_format_default,
    # --user 7 11 takes all values up to the next option. So a positional argument behind it would
    # be taken too; places go before the options.
    consume_multiple=1,
)
"""Rules of every option of every command."""

_BEHIND_EQUALS = "An id that begins with - stands behind an equals sign: --user=-x."

_SIBLINGS = {
    "recommend": ("similar", "; --history has the items of a new user"),
    "similar": ("recommend", ""),
}
"""Commands on the same runs whose options are taken for each other, with a hint."""

_TAKE_IDS = frozenset({"user", "history", "item", "exclude", "candidates"})

# With cyclopts' default there would be --no-no-neg-trick.
FLAG = Parameter(negative="", show_default=False)
"""Rule of an option without a value."""


def use_threads(threads: int | None) -> None:
    """Set the number of CPU threads, if given, before ranks join, because they compare it."""
    if threads is not None:
        checked_threads = validate("threads", threads, Threads)
        import torch

        torch.set_num_threads(checked_threads)


WITH_COMMAS = frozenset({"columns", "models", "metrics"})
"""Lists of names that may be separated by commas. Lists of numbers always may; lists of ids never,
since an id may contain a comma."""


def join_skipped_columns(tokens: Sequence[str]) -> list[str]:
    """Return the words of a command line, with ``--columns -,user_id`` as one word.

    The parser takes a word that begins with a hyphen for an option.
    """
    joined: list[str] = []
    for token in tokens:
        if token.startswith("-,") and joined and joined[-1].startswith("--"):
            joined[-1] += f"={token}"
        else:
            joined.append(token)
    return joined


def split_at_commas(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Split a value at its commas if the option is a list of numbers or names."""
    for argument in arguments:
        words = [token.value for token in argument.tokens if token.keyword is not None]
        kinds = types_in(argument.hint)
        is_numbers = any(get_origin(kind) is tuple for kind in kinds) and bool(kinds & {int, float})
        if any("," in word for word in words) and (
            is_numbers or argument.field_info.name in WITH_COMMAS
        ):
            argument.tokens = [
                token.evolve(value=part)
                for token in argument.tokens
                for part in (token.value.strip(",") if is_numbers else token.value).split(",")
            ]


def check_whole_numbers(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse 3.5 for a whole number; cyclopts would round it to 4."""
    for argument in arguments:
        kinds = types_in(argument.hint)
        if int in kinds and float not in kinds:
            for token in argument.tokens:
                if "." in token.value:
                    raise CoercionError(argument=argument, token=token, target_type=int)


_GIVEN = "_given"
"""Attribute of options of `unset`: those that the command line has."""


def unset(config: type[Any], *, without: Collection[str] = ()) -> Any:
    """Return a class with a config's options, None by default; help shows the config's defaults.

    So given options differ from defaults. The names in ``without`` are no options.
    """
    hints: dict[str, Any] = get_type_hints(config, include_extras=True)
    annotations: dict[str, object] = {}
    for item in fields(config):
        hint = hints[item.name]
        rules: tuple[object, ...] = getattr(hint, "__metadata__", ())
        plain = get_args(hint)[0] if rules else hint
        default = Parameter(show_default=_format_default(item.default) or False)
        if item.default is False:
            default = FLAG
        if item.name in without:
            default = Parameter(parse=False)
        # `| None`, since cyclopts has pydantic check every value, also None, if it is imported.
        annotations[item.name] = Annotated[plain | None, *rules, default]
    body = {
        "__annotations__": annotations,
        "__post_init__": lambda self: None,  # the config itself checks the given values
        **dict.fromkeys(annotations),
    }
    made: Any = dataclass(frozen=True, kw_only=True)(type(config.__name__, (config,), body))
    begin = made.__init__

    @wraps(begin)
    def remember(self: object, **given: object) -> None:
        begin(self, **given)
        object.__setattr__(self, _GIVEN, given)

    made.__init__ = remember
    return made


def given_settings(options: object) -> dict[str, Any]:
    """Return the given settings among options, by name; those of `unset` also if given as none."""
    found = {} if options is None else vars(options)
    given = {name: one for name, one in found.items() if one is not None}
    return dict(found.get(_GIVEN, given))


def types_in(hint: object) -> set[object]:
    """Return the types and values in a hint: ``int | Literal["auto"]`` has int and auto."""
    return {hint}.union(*(types_in(inner) for inner in get_args(hint)))


def explain_error(error: CycloptsError, app: App) -> str:
    """Return the message for a line of ``app`` that cannot be parsed, with the command for help."""
    words = ["foretaste", *(error.command_chain or ())]
    message = str(error)
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).replace("_", "-")
        names = _names_of(error.argument_collection)
        message = f"Unknown option: {option}{_explain_option(option, app, words[1], names)}"
    elif (
        isinstance(error, CoercionError) and error.argument is not None and error.token is not None
    ):
        if allowed := _describe_numbers(types_in(error.argument.hint)):
            name = error.token.keyword or error.argument.name
            message = f"{name} is {error.token.value!r}; it must be {allowed}"
    elif isinstance(error, MissingArgumentError):
        assert error.argument is not None
        is_place = not error.argument.name.startswith("-")
        where = "; it goes before the options" if is_place else ""
        message = f"{error.argument.name} is needed and not given{where}."
        if error.keyword is not None:
            message = f"{error.keyword} needs a value."
            if error.argument.field_info.name in _TAKE_IDS:
                message += f" {_BEHIND_EQUALS}"
    elif isinstance(error, UnknownCommandError) and words[1:] in (["train"], ["tune"]):
        message = message.partition(" Available commands")[0]  # Cyclopts names eight of them
        able = [
            name
            for name in MODEL_NAMES
            if words[1:] == ["train"] or config_class(name).search_space
        ]
        message = f"{message} Name a model first, such as ease: {', '.join(able)}."
    elif isinstance(error, UnknownCommandError) and "resume" in (error.unused_tokens or ()):
        message = 'Unknown command "resume". Say foretaste train --resume RUN.'
    elif isinstance(error, UnusedCliTokensError):
        message = f"Nothing is known to do with {' '.join(error.unused_tokens or ())!r}."
    return f"{message}\nSee {' '.join(words)} --help."


def _names_of(arguments: ArgumentCollection) -> set[str]:
    return {name for one in arguments for name in one.names if one.parse}


def _explain_option(option: str, app: App, verb: str, names: Collection[str]) -> str:
    """Return the end of the message about an unknown option of a command with these ``names``: the
    option that is meant, or the command or models that have it."""
    ours = {_setting(name): name for name in names}
    if there := translate_name(_setting(option), ours):
        return f". Did you mean {ours[there]}?"
    if verb in ("train", "tune", "compete") and option in _options_of_preparing():
        return (
            ", which belongs to foretaste prepare. Prepare the files first: foretaste prepare "
            f"SOURCES {option} ..."
        )
    if verb in _SIBLINGS:
        if not option.startswith("--"):
            return f". {_BEHIND_EQUALS}"
        sibling, hint = _SIBLINGS[verb]
        if option in _names_of(app[sibling].assemble_argument_collection()):
            return f", which belongs to foretaste {sibling}{hint}."
    if meant := _names_like(option, names):
        return f". Did you mean {_join_or(meant)}?"
    if verb == "train" and (able := _models_with(option)):
        return f", which is for {', '.join(able)}."
    near = similar_names(_setting(option), ours)
    return f". Did you mean {ours[near[0]]}?" if near else "."


def _setting(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _names_like(option: str, names: Collection[str]) -> list[str]:
    """Return the option that differs by a final s, then those that begin with ``option`` and a
    hyphen."""
    singular = option.removesuffix("s")
    same = sorted({singular, f"{singular}s"} & set(names))
    return same + sorted(name for name in names if name.startswith(f"{option}-"))


def _models_with(option: str) -> list[str]:
    """Return the models whose training has an option."""
    from foretaste.training.config import TrainingConfig, applies

    name = _setting(option)
    of_training = name in {one.name for one in fields(TrainingConfig)}
    kinds = {model: config_class(model) for model in MODEL_NAMES}
    return [
        model
        for model, kind in kinds.items()
        if (of_training and applies(name, kind)) or name in {one.name for one in fields(kind)}
    ]


def _describe_numbers(kinds: Collection[object]) -> str | None:
    """Return the allowed values of an option that takes numbers; None for another option."""
    numbers = {int: "a whole number", float: "a number"}
    words = [text for kind, text in numbers.items() if kind in kinds][-1:]
    names = sorted(kind for kind in kinds if isinstance(kind, str))
    return _join_or([*words, *names]) if words else None


def _join_or(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _options_of_preparing() -> set[str]:
    """Return options that say how data are read; not ``--seed``, which a training may have too."""
    from foretaste.data.config import PrepareConfig

    return {f"--{one.name.replace('_', '-')}" for one in fields(PrepareConfig)} - {"--seed"}

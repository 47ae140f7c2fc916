"""What is said of a command line that cannot be read."""

from __future__ import annotations

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from foretaste.cli.arguments import DEFAULTS, ID_LISTS, kinds_of

_OTHER_NAMES = {"--lr": "--learning-rate"}
"""Options by the names that other programs have for them."""

# Options that other programs have, and why there are none here.
_NOWHERE = {
    "--weight-column": "No model here weighs rows: an interaction happened or it did not, whatever "
    "its rating or count. --rating-column COLUMN --min-rating N leaves low ones out.",
}


def explained(app: App, error: CycloptsError) -> str:
    """What was wrong with a command line of ``app``, and where help is."""
    words = ["foretaste", *(error.command_chain or ())]
    unused = " ".join(error.unused_tokens or ())
    message = str(error)
    if isinstance(error, UnknownOptionError):
        message = _not_here(app, words, error) or message
    elif isinstance(error, CoercionError):
        message = _unreadable(error) or message
    elif isinstance(error, MissingArgumentError):
        message = _missing(error, unused)
    elif isinstance(error, UnusedCliTokensError):
        message = f"Nothing is known to do with {unused!r}."
        if words[-1] in ID_LISTS:
            message += " Several ids may follow an option where the run stands before it."
            message += " Behind an equals sign stands one alone."
    return f"{message}\nSee {' '.join(words)} --help."


def _not_here(app: App, words: list[str], error: UnknownOptionError) -> str | None:
    """What to say of an option that the command of these words lacks: it is known elsewhere.

    None where it is not.
    """
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
    owners = [name for name in app if not name.startswith("-") and _has_option(app[name], option)]
    if not owners:
        return None
    return f"Unknown option: {option}, which belongs to {beside} {', '.join(owners)}."


def _has_option(command: App, option: str) -> bool:
    if command.default_command is None:
        return False
    arguments = command.assemble_argument_collection(default_parameter=DEFAULTS)
    return any(option in argument.names for argument in arguments if argument.parse)


def _unreadable(error: CoercionError) -> str | None:
    """What to say of a value that is no number; None where it should have been another thing."""
    kinds = kinds_of(error.argument.hint) if error.argument is not None else set()
    wanted = "a number" if float in kinds else "a whole number" if int in kinds else None
    if wanted is None or error.token is None or error.token.keyword is None:
        return None
    auto = " or auto" if "auto" in kinds else ""
    return f"{error.token.keyword} takes {wanted}{auto}, not {error.token.value!r}."


def _missing(error: MissingArgumentError, unused: str) -> str:
    """What to say of an option without its value, or of what is not there at all."""
    assert error.argument is not None
    if error.keyword is not None:
        return f"{error.keyword} needs a value."
    stray = f", and nothing is known to do with {unused!r}" if unused else ""
    return f"{error.argument.name} is needed and not given{stray}."

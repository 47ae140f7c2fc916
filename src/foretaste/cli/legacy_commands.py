"""Which command does what a script is told to do by ``--mode``, ``--train`` and the like."""

from __future__ import annotations

from foretaste.cli.legacy_options import NCF_MODELS, VAE_MODELS
from foretaste.cli.legacy_tokens import Command, take
from foretaste.errors import SettingError

_MODES = {"train": "train", "test": "evaluate"}
_SWITCHES = {"--train": "train", "--test": "evaluate", "--inference-benchmark": "bench"}

_DOES = {
    "train": {"train"},
    "evaluate": {"evaluate"},
    "bench train": {"train"},
    "bench inference": {"bench", "evaluate"},
    "bench recommend": {"bench", "evaluate"},
}
"""What a command does of what the scripts can be told to do."""


def selected(command: Command, tokens: list[str]) -> Command:
    """The command that does what ``tokens`` say, which is removed from them.

    Raises SettingError where no single one does.
    """
    if command.verb not in _DOES:
        return command
    told = _told(command, tokens)
    others = told.keys() - _DOES[command.verb]
    # A training ends with the test part.
    if not others or (command.verb == "train" and told.keys() == {"train", "evaluate"}):
        return command
    if command.verb == "train" and len(told) == 1:
        words = ("evaluate",) if "evaluate" in told else ("bench", "recommend", command.words[-1])
        return Command(words)
    named = " and ".join(told.values())
    raise SettingError(
        f"foretaste {' '.join(command.words)} does not do what {named} "
        f"{'says' if len(told) == 1 else 'say'}; give a command for each"
    )


def _told(command: Command, tokens: list[str]) -> dict[str, str]:
    """Everything a script is told to do, and as it was written."""
    names = set(_SWITCHES) if command.model not in NCF_MODELS else set()
    if command.model not in VAE_MODELS:
        names.add("--mode")
    told = {}
    for given in take(names, tokens):
        if given.name == "--mode":
            if given.value not in _MODES:
                raise SettingError(f"--mode is {given.value!r}; use train or test")
            told[_MODES[given.value]] = f"--mode {given.value}"
        else:
            told[_SWITCHES[given.name]] = given.written
    return told

"""Command lines of the reference scripts, NVIDIA's NCF and VAE-CF, put into our words.

What followed ``python ncf.py`` goes behind ``foretaste train neumf``, what followed ``python
main.py`` behind ``foretaste train vae``; ``--mode test``, ``--test`` and ``--inference_benchmark``
choose the command that does it here. Every option of theirs is in `legacy_options`.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretaste.cli.legacy_commands import selected
from foretaste.cli.legacy_line import Line
from foretaste.cli.legacy_meanings import other_dataset, shape_of
from foretaste.cli.legacy_options import FIRST, LAST, meanings, meanings_when_testing
from foretaste.cli.legacy_paths import model_settings_of_run
from foretaste.cli.legacy_tokens import Command, take
from foretaste.errors import SettingError

_WHY_LEFT_ASIDE = {
    "evaluate": "said of training, which is over; ranking is always computed in fp32",
    "bench train": "changes nothing about what is measured",
    "bench inference": "changes nothing about what is measured; answers are computed in fp32",
    "bench recommend": "changes nothing about what is measured; answers are computed in fp32",
}


def modern(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command line with our options in the place of the scripts', and notes for the user.

    Raises SettingError where two options contradict each other, or name what is not there.
    """
    asked = Command.of(tokens)
    if asked is None or not meanings(asked):
        return list(tokens), []
    rest = list(tokens[len(asked.words) :])
    command = selected(asked, rest)
    is_other = command != asked
    is_test = is_other and command.verb == "evaluate"
    known = meanings_when_testing() if is_test else meanings(command)
    given = take(known, rest)
    line = Line(command)
    dataset = rest.pop(0) if is_other and rest and not rest[0].startswith("-") else None
    line.keep(rest)
    if dataset is not None:
        (other_dataset if is_test else shape_of)(line, "DATASET", dataset)
    for option in sorted(given, key=lambda option: _rank(option.name)):
        known[option.name](line, option.written, option.value)
    if is_test:
        _check_run(line)
    elif is_other and not line.says("--batch-sizes"):
        line.add("--inference_benchmark", "--batch-sizes", "1")
    return line.tokens(), _notes(line)


def _rank(name: str) -> int:
    return -1 if name in FIRST else int(name in LAST)


def _check_run(line: Line) -> None:
    """SettingError where no run is named, or it is not what was said of it."""
    if line.place is None:
        raise SettingError(
            "a test needs the run to test: --load-checkpoint-path RUN or --checkpoint-dir RUN"
        )
    if not line.described:
        return
    _, settings = model_settings_of_run(line.place)
    for written, name, value in line.described:
        found = settings.get(name)
        kept = " ".join(map(str, found)) if isinstance(found, list) else str(found)
        if value.replace(",", " ").split() != kept.split():
            raise SettingError(
                f"{written} is {value}, but {line.place} was trained with {kept}; "
                "leave it out: the run keeps its own"
            )


def _notes(line: Line) -> list[str]:
    if not line.left_aside:
        return []
    why = _WHY_LEFT_ASIDE[line.command.verb]
    return [f"{', '.join(dict.fromkeys(line.left_aside))}: {why}"]

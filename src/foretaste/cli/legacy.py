"""Command lines of the reference scripts, NVIDIA's NCF and VAE-CF, put into our words.

What followed ``python ncf.py`` goes behind ``foretaste train neumf``, what followed ``python
main.py`` behind ``foretaste train vae``; ``--mode test``, ``--test`` and ``--inference_benchmark``
choose the command that does it here. Every option of theirs is in `legacy_options`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretaste.cli.legacy_line import Line, Meaning
from foretaste.cli.legacy_meanings import (
    as_theirs_trained,
    one_random_user,
    other_dataset,
    prepared_as_in_the_guides,
    replace_as_theirs,
    shape_of,
)
from foretaste.cli.legacy_notes import notes_of
from foretaste.cli.legacy_options import (
    FIRST,
    LAST,
    meanings,
    meanings_when_testing,
)
from foretaste.cli.legacy_paths import model_settings_of_run, run_of
from foretaste.cli.legacy_tokens import NCF_MODELS, VAE_MODELS, Command, Given, take
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


def modern(tokens: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """The command lines to run, our options in the place of the scripts', and notes for the user.

    One line, but for a mere ``prepare``: each guide has its own. Raises SettingError where two
    options contradict each other, or name what is not there.
    """
    asked = Command.of(tokens)
    if asked is None or not meanings(asked):
        return [list(tokens)], []
    rest = list(tokens[len(asked.words) :])
    if asked.verb == "prepare" and not rest:
        return prepared_as_in_the_guides()
    told = _told(asked, rest)
    command = _selected(asked, told)
    is_test = command != asked and command.verb == "evaluate"
    known = meanings_when_testing() if is_test else meanings(command)
    given = take(known, rest)
    line = Line(command, script_model=asked.model)
    if command == asked:
        line.keep(rest)
        _name_the_run(line)
    else:
        _keep_but_the_dataset(line, rest)
    is_old = bool(told) or any(_is_theirs(option, line) for option in given)
    _translate(line, given, known)
    if is_test:
        _check_run(line)
        replace_as_theirs(line)
    elif command != asked:
        one_random_user(line)
    elif is_old:
        as_theirs_trained(line)
    return [line.tokens()], notes_of(line) if is_old else []


def _told(command: Command, tokens: list[str]) -> dict[str, str]:
    """Everything a script is told to do, as it was written; removed from ``tokens``."""
    if command.verb not in _DOES:
        return {}
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


def _selected(command: Command, told: Mapping[str, str]) -> Command:
    """The command that does what a script is told; SettingError where no single one does."""
    others = told.keys() - _DOES.get(command.verb, set())
    # A training ends with the test part.
    if not others or (command.verb == "train" and told.keys() == {"train", "evaluate"}):
        return command
    if command.verb == "train" and len(told) == 1:
        assert command.model is not None
        words = ("evaluate",) if "evaluate" in told else ("bench", "recommend", command.model)
        return Command(words)
    named = " and ".join(told.values())
    raise SettingError(
        f"foretaste {' '.join(command.words)} does not do what {named} "
        f"{'says' if len(told) == 1 else 'say'}; give a command for each"
    )


def _name_the_run(line: Line) -> None:
    """Of a checkpoint to evaluate, its run."""
    if line.command.verb == "evaluate" and (checkpoint := line.take_place()):
        line.put("RUN", run_of(checkpoint))


def _keep_but_the_dataset(line: Line, rest: list[str]) -> None:
    """Take tokens as they are; a dataset before them becomes an option of another command."""
    dataset = rest.pop(0) if rest and not rest[0].startswith("-") else None
    line.keep(rest)
    if dataset is not None:
        meaning = other_dataset if line.command.verb == "evaluate" else shape_of
        meaning(line, "DATASET", dataset)


def _is_theirs(option: Given, line: Line) -> bool:
    """Whether it means there what it means nowhere else: with a precision, the scale is ours."""
    return not (option.name == "--loss-scale" and line.says("--precision"))


def _translate(line: Line, given: Sequence[Given], known: Mapping[str, Meaning]) -> None:
    for option in sorted(given, key=lambda option: _rank(option.name)):
        known[option.name](line, option.written, option.value)


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

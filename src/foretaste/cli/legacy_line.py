"""A command line of the reference scripts while it is put into our words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from foretaste.cli.arguments import SHORT_NAMES, is_metric, is_numbers
from foretaste.cli.legacy_tokens import FLAGS, Command, canonical
from foretaste.errors import SettingError

_SAME = {"--fp16": "--amp"}
"""Two names of one option."""

_LONG_NAMES = {short: f"--{name.replace('_', '-')}" for name, short in SHORT_NAMES.items()}


@dataclass
class Line:
    """Our command line, as far as it is known; refuses to say one thing twice."""

    command: Command
    script_model: str | None = None
    """The model of the command as it was typed, which may have become another."""
    kept: list[str] = field(default_factory=list)
    """Tokens that are ours already."""
    added: list[str] = field(default_factory=list)
    place: str | None = None
    """The dataset, run or source that goes before the options."""
    left_aside: list[str] = field(default_factory=list)
    """Options without a part in this command."""
    described: list[tuple[str, str, str]] = field(default_factory=list)
    """Settings that a run must have: as written, its name there, the value."""
    notes: list[str] = field(default_factory=list)
    """What was found or chosen, for the user."""
    _said: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Our options by name: the words that stand for each, and what it says where it was added."""

    def keep(self, tokens: Iterable[str]) -> None:
        """Take tokens as they are."""
        self.kept = list(tokens)
        for token in self.kept:
            name = canonical(token)
            if name.startswith("-"):
                self._said[_LONG_NAMES.get(name, name)] = (name, None)

    def says(self, option: str) -> bool:
        """Whether one of our options is there already."""
        return option in self._said

    def said_by(self, option: str) -> str | None:
        """The words that stand for one of our options; None where it is not there."""
        return self._said[option][0] if option in self._said else None

    def value_of(self, option: str) -> str | None:
        """The value that was given to one of our options."""
        tokens = self.kept + self.added
        for number, token in enumerate(tokens):
            name, equals, value = token.partition("=")
            if _LONG_NAMES.get(canonical(name), canonical(name)) == option:
                return value if equals else next(iter(tokens[number + 1 :]), None)
        return None

    def given_place(self) -> str | None:
        """The dataset, run or source among the tokens that are ours already."""
        number = self._number_of_place()
        return None if number is None else self.kept[number]

    def take_place(self) -> str | None:
        """The same, no longer among them."""
        number = self._number_of_place()
        return None if number is None else self.kept.pop(number)

    def _number_of_place(self) -> int | None:
        """Where the first word stands that is no option's value, no number and no metric."""
        takes_value = False
        for number, token in enumerate(self.kept):
            if is_numbers(token) or is_metric(token):
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
        """Say ``option``, for which ``written`` stood; SettingError where something else did."""
        said = (_SAME.get(written, written), value)
        if self._said.get(option) == said:
            return
        for name in (option, f"--no-{option.removeprefix('--')}"):
            if other := self.said_by(name):
                raise SettingError(
                    f"{other} and {written} both say what {option} is; leave out one of them"
                )
        self._said[option] = said
        self.added += [option] if value is None else [option, value]

    def put(self, written: str, place: str) -> None:
        """Say which dataset, run or source the command is about."""
        taken = self.place or self.given_place()
        if taken not in (None, place):
            raise SettingError(f"{written} {place} and {taken} name two; leave out one of them")
        if taken is None:
            self.place = place

    def tokens(self) -> list[str]:
        """The whole command line."""
        place = [] if self.place is None else [self.place]
        return [*self.command.words, *place, *self.kept, *self.added]


Meaning = Callable[[Line, str, str], None]
"""What an option comes to: told the line, the option as written, and its value ("" for a flag)."""

"""Errors that a user can meet.

::

    ForetasteError                base class: the message has the fault, the value and the remedy
    ├── SettingError              a setting or option is out of range, unknown or in conflict
    ├── InputError                raw interactions cannot be read: file, line, column, example
    ├── DatasetError              a prepared dataset directory is missing, torn or foreign
    │   └── NothingLeftError      the runs to be measured were trained on all that is held out
    ├── RunError                  a run directory is missing, torn or foreign, or already there
    ├── UnknownIdError            an id that the run or dataset has never seen
    ├── UnsupportedError          this model cannot answer such a question
    ├── TrainingError             training cannot continue: non-finite loss, nothing to learn
    ├── RankError                 another rank of this training failed, or is not there
    └── MissingExtraError         an optional dependency is missing: the pip install line

The command line prints the message without a traceback and exits with status 2. Faults of foretaste
raise AssertionError and show a traceback. `DataWarning` is a note on the data, which the command
line prints. `Interrupted` is no fault: it is a KeyboardInterrupt that tells how to resume.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from foretaste._util.formatting import without_secrets

E = TypeVar("E", bound=BaseException)


class ForetasteError(Exception):
    """An error that the user can correct; the message tells how, without passwords."""

    hint = ""
    """End of the message with the way to resume, if a training was saved."""

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))

    def __str__(self) -> str:
        return f"{super().__str__()}{self.hint}"


class SettingError(ForetasteError, ValueError):
    """A setting is out of range, unknown or in conflict with another."""


class InputError(ForetasteError):
    """Raw interactions cannot be read."""


class DatasetError(ForetasteError):
    """A prepared dataset directory is missing, torn or foreign, or lacks a part."""


class NothingLeftError(DatasetError):
    """All held-out pairs were trained on by the runs to be measured."""


class RunError(ForetasteError):
    """A run directory is missing, torn or foreign, or would be overwritten."""


class WorseError(ForetasteError):
    """A run is clearly worse than the other run of a comparison."""


class UnknownIdError(ForetasteError, LookupError):
    """User or item ids are unknown to the run; ``ids`` has all of them."""

    def __init__(self, message: str, ids: Iterable[int | str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class DataWarning(UserWarning):
    """A note of a preparation on the data, such as ids kept as text, or columns not used."""


class UnsupportedError(ForetasteError):
    """The model cannot answer this question."""


class TrainingError(ForetasteError):
    """Training cannot start or continue."""


class RankError(ForetasteError):
    """Another rank failed, is not there, or differs from this one."""


class MissingExtraError(ForetasteError, ImportError):
    """An optional dependency is not installed."""


class Interrupted(KeyboardInterrupt):
    """A signal interrupted a training; the message has the position and the way to resume."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


@dataclass(frozen=True)
class Report:
    """The way in which one of several ranks prints an error that ends all of them."""

    is_printed: bool = False
    """True if the message was printed, or another rank prints it."""
    prefix: str = ""
    """Text before the message."""


def attach_report(error: E, report: Report) -> E:
    """Return the error with the report on which the ranks have agreed."""
    error.__dict__["foretaste_report"] = report
    return error


def report_of(error: BaseException | None) -> Report | None:
    """Return the report of an error or of its cause; None if it has none."""
    while error is not None:
        report = error.__dict__.get("foretaste_report")
        if isinstance(report, Report):
            return report
        error = error.__cause__ or error.__context__
    return None

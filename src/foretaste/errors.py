"""Errors that a user can meet.

::

    ForetasteError                base of all: says what was wrong, the value met and what to do
    ├── SettingError              a setting or option is out of range, unknown or in conflict
    ├── InputError                raw interactions cannot be read: file, line, column, example
    ├── DatasetError              a prepared dataset directory is missing, torn or foreign
    ├── RunError                  a run directory is missing, torn or foreign, or already there
    ├── UnknownIdError            an id that the run or dataset has never seen
    ├── UnsupportedError          this model cannot answer that question, and why
    ├── TrainingError             training cannot go on: non-finite loss, nothing to train on
    ├── RankError                 another rank of this training failed, or is not there
    └── MissingExtraError         an optional dependency is missing: the pip install line

The command line prints the message without a traceback and exits with status 2. Mistakes of our
own raise AssertionError and do show a traceback. `DataWarning` is a note on the data, which the
command line prints. `Interrupted` is no mistake at all: a
KeyboardInterrupt that says how to go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class ForetasteError(Exception):
    """A mistake the user can mend; the message says how."""

    way_on = ""
    """The end of the message, where a training is kept: how to go on with it."""

    def __str__(self) -> str:
        return f"{super().__str__()}{self.way_on}"


class SettingError(ForetasteError, ValueError):
    """A setting is out of range, unknown or in conflict with another."""


class InputError(ForetasteError):
    """Raw interactions cannot be read."""


class DatasetError(ForetasteError):
    """A prepared dataset directory is missing, torn, foreign or lacks what was asked of it."""


class RunError(ForetasteError):
    """A run directory is missing, torn or foreign, or would be overwritten."""


class WorseError(ForetasteError):
    """A run is clearly worse than the one that it was held against."""


class UnknownIdError(ForetasteError, LookupError):
    """User or item ids that the run has never seen; ``ids`` are all of them."""

    def __init__(self, message: str, ids: Iterable[int | str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class DataWarning(UserWarning):
    """A note on raw interactions as they were prepared: ids kept as text, columns not used."""


class UnsupportedError(ForetasteError):
    """The model cannot answer this question."""


class TrainingError(ForetasteError):
    """Training cannot start or go on."""


class RankError(ForetasteError):
    """Another rank failed, is not there, or differs from this one."""


class MissingExtraError(ForetasteError, ImportError):
    """An optional dependency is not installed."""


class Interrupted(KeyboardInterrupt):
    """A training was interrupted by a signal; the message says where, and how to go on."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


@dataclass(frozen=True)
class Report:
    """The part of one of several ranks in printing an error that ends them all."""

    is_printed: bool = False
    """The message is there already, or another rank prints it."""
    prefix: str = ""
    """Goes before the message."""


def with_report(error: E, report: Report) -> E:
    """The same error, with what the ranks have agreed about printing it."""
    error.__dict__["foretaste_report"] = report
    return error


def report_of(error: BaseException | None) -> Report | None:
    """The report of an error, or of the one that led to it; None where ranks agreed on nothing."""
    while error is not None:
        report = error.__dict__.get("foretaste_report")
        if isinstance(report, Report):
            return report
        error = error.__cause__ or error.__context__
    return None

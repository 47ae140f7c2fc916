"""Progress of a preparation, reported to a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]
"""Called with the name of each step of a preparation as it begins."""


class _CallersError(Exception):
    """Carries what the caller's function raised past those who would take it for their own."""


@contextmanager
def reporting(progress: Progress | None) -> Iterator[Progress]:
    """Yield a function that hands on to ``progress`` where there is one.

    Whatever ``progress`` raises leaves the block as it is: an OSError of its own is not about the
    files that are read and written here.
    """

    def report(step: str) -> None:
        if progress is None:
            return
        try:
            progress(step)
        except Exception as error:
            raise _CallersError(error) from None

    try:
        yield report
    except _CallersError as carrier:
        (error,) = carrier.args
        raise error from error.__cause__

"""Command lines: text made safe for a terminal, streams that may be closed, full or gone, exit
statuses, and how their threads share the cores."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper
from typing import TextIO

from foretaste._util.process import CaughtSignals
from foretaste.errors import ForetasteError, Interrupted, Report, report_of

EXIT_MISTAKE = 2
EXIT_SIGNALLED = 128
EXIT_BROKEN_PIPE = 141

_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_NO_CHARACTERS = (*range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
"""Halves of characters, which names of files may have, and what neither XML nor a drawing takes."""
_UNSAFE = (*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL, *_LINE_ENDS, *_NO_CHARACTERS)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSAFE}


def printable(text: str) -> str:
    """``text`` on one line, safe for a terminal, a page and a drawing: the rest is escaped as in
    JSON.

    That is control characters, which move the cursor or set the window's title, the characters
    that turn the direction of writing, and what is no character.
    """
    return text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """The same of each line."""
    return "\n".join(map(printable, text.split("\n")))


def print_error(message: str, file: TextIO | None = None) -> None:
    """A line on stderr, or in ``file``; lost where that cannot be written."""
    with suppress(OSError):
        print(printable_lines(message), file=file or sys.stderr, flush=True)


def print_data(text: str, end: str = "\n") -> None:
    """Text on stdout for other programs, as it is: UTF-8, unless stdout is a terminal.

    There, what would command it is escaped. Raises ForetasteError for a character that cannot be
    printed, where a table would have a question mark.
    """
    is_terminal = sys.stdout.isatty()
    encoding = sys.stdout.encoding if is_terminal else "utf-8"
    text = (printable_lines(text) if is_terminal else text) + end
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError as error:
        raise ForetasteError(
            f"{text[error.start]!a} cannot be printed in the encoding {error.encoding} of the "
            "output; a terminal's is set by PYTHONIOENCODING=utf-8, and files and pipes get UTF-8"
        ) from None
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding != encoding:
        sys.stdout.reconfigure(encoding=encoding)
    sys.stdout.write(text)


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Drop what is printed within: of several ranks, the first alone prints."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,  # noqa: PTH123
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


SPIN_COUNT = "1000"
"""Turns that a thread which waits for others spins before it sleeps; OpenMP's own are billions."""


def share_cores() -> None:
    """Have threads that wait for each other spin for a moment, then sleep, unless the environment
    says otherwise by GOMP_SPINCOUNT or OMP_WAIT_POLICY.

    Goes through the environment, for GNU's OpenMP, and must come before PyTorch is imported.
    """
    # Measured on two cores, milliseconds an update of GMF with 512 negatives, NeuMF and Mult-VAE:
    # alone 23.5, 29.5, 29.7 by 1,000 turns and 15.2, 22.4, 21.7 by 10,000, more of which gain
    # nothing; beside another program 24, 45, 38 and 55, 66, 58. Sleeping at once costs a third.
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def run_command(work: Callable[[], None]) -> None:
    """Do the work of a command, then exit with its status.

    A mistake of the user is printed without a traceback and exits with 2, as does a stdout that
    cannot be written; an interrupt with 130, SIGTERM with 143, SIGHUP with 129, a reader that went
    away with 141. These signals are exceptions, so what is half-written goes.
    """
    try:
        status = _status_of(work)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python must not try again when it exits
                with suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if status:
        sys.exit(status)


def _status_of(work: Callable[[], None]) -> int:
    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    signals = CaughtSignals(interrupt)
    try:
        with signals:
            _open_streams()
            work()
            sys.stdout.flush()
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        report = report_of(error) or Report()
        status, message = _end_of(error, signals.last, report.prefix)
        if not report.is_printed:
            if message is None:
                raise
            print_error(message)
        return status
    return 0


def _end_of(error: BaseException, signal_number: int | None, prefix: str) -> tuple[int, str | None]:
    """The exit status of an error, and its message; None for a mistake of our own."""
    if isinstance(error, Interrupted):
        return EXIT_SIGNALLED + error.signal_number, str(error)
    # A library that is interrupted may raise what it likes, as pandas does within its import.
    if signal_number is not None or isinstance(error, KeyboardInterrupt):
        return EXIT_SIGNALLED + (signal_number or signal.SIGINT), "interrupted"
    if not isinstance(error, ForetasteError | OSError):
        return 1, None
    nameless = isinstance(error, OSError) and error.filename is None and error.strerror
    text = f"the output cannot be written: {nameless}" if nameless else str(error)
    return EXIT_MISTAKE, f"error: {prefix}{text}"


def _open_streams() -> None:
    """Let closed streams lead nowhere; ForetasteError where that is stdout.

    A file opened later would take the number of the stream, and whatever a library says there.
    """
    is_stdout_closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # for what a terminal's encoding lacks
    if is_stdout_closed:
        raise ForetasteError("stdout is closed, so there is nowhere to print; try >/dev/null")

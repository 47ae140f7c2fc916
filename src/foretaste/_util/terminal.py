"""Command lines: text made safe for a terminal, streams that may be closed, full or gone, exit
statuses, and how their threads share the cores."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TextIO

from foretaste._util.process import CaughtSignals, voice
from foretaste.errors import ForetasteError, Interrupted

EXIT_MISTAKE = 2
EXIT_SIGNALLED = 128
EXIT_BROKEN_PIPE = 141

_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_UNSAFE = (*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL, *_LINE_ENDS)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSAFE}


def printable(text: str) -> str:
    """``text`` on one line, safe for a terminal: what would command it is escaped as in JSON.

    That is control characters, which move the cursor or set the window's title, and the characters
    that turn the direction of writing.
    """
    return text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """The same of each line."""
    return "\n".join(map(printable, text.split("\n")))


def print_error(message: str, file: TextIO | None = None) -> None:
    """A line on stderr, or in ``file``; lost where that cannot be written."""
    with suppress(OSError):
        print(printable_lines(message), file=file or sys.stderr, flush=True)


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Drop what is printed within: of several ranks, the first alone prints."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,  # noqa: PTH123
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


def say_error(message: str) -> None:
    """The same of why this process ends, unless another rank has said it."""
    if not voice.is_quiet:
        print_error(message)


def share_cores() -> None:
    """Have threads that wait for each other spin for a moment, then sleep.

    Goes through the environment, for GNU's OpenMP, and must come before PyTorch is imported.
    """
    # Measured on two cores with Mult-VAE's step of many short operations: sleeping at once
    # (OMP_WAIT_POLICY=PASSIVE) costs a third of the speed; spinning for long, the default, gives a
    # tenth of it where another program wants the same cores; this gives all of it alone and four
    # fifths of what sleeping gives beside another.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


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
    except Interrupted as error:
        say_error(str(error))
        return EXIT_SIGNALLED + error.signal_number
    except (Exception, KeyboardInterrupt) as error:
        # A library that is interrupted may raise what it likes, as pandas does within its import.
        if signals.last is not None or isinstance(error, KeyboardInterrupt):
            say_error("interrupted")
            return EXIT_SIGNALLED + (signals.last or signal.SIGINT)
        if not isinstance(error, ForetasteError | OSError):
            if voice.is_quiet:
                return 1
            raise
        nameless = isinstance(error, OSError) and error.filename is None and error.strerror
        text = f"the output cannot be written: {nameless}" if nameless else str(error)
        say_error(f"error: {voice.name}{text}")
        return EXIT_MISTAKE
    return 0


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

"""Command lines: text safe for a terminal, streams closed or full, and exit statuses."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper

from foretaste._util.system import CaughtSignals
from foretaste.errors import ForetasteError, Interrupted, Report, report_of

EXIT_MISTAKE = 2
EXIT_SIGNALLED = 128
EXIT_BROKEN_PIPE = 141

_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_NO_CHARACTERS = (*range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
"""Lone surrogates, which file names may have, and two non-characters that XML and plots refuse."""
_UNSAFE = (*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL, *_LINE_ENDS, *_NO_CHARACTERS)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSAFE}


def printable(text: str) -> str:
    """Return ``text`` on one line, safe for terminal, page and plot, escaped as in JSON.

    Unsafe are control characters, which move the cursor or set the window's title, changes of the
    writing direction, and non-characters.
    """
    return text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """Return each line of ``text`` as `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def print_error(message: str) -> None:
    """Print a line on stderr; it is lost if that cannot be written."""
    with suppress(OSError):
        print(printable_lines(message), file=sys.stderr, flush=True)


def print_data(text: str, end: str = "\n") -> None:
    """Print text on stdout for other programs, unchanged and in UTF-8.

    On a terminal unsafe characters are escaped, in the terminal's encoding. Raises ForetasteError
    for a character that the encoding lacks; a question mark in its place would be wrong data.
    """
    is_terminal = sys.stdout.isatty()
    encoding = sys.stdout.encoding if is_terminal else "utf-8"
    text = (printable_lines(text) if is_terminal else text) + end
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError as error:
        raise ForetasteError(
            f"{text[error.start]!a} cannot be printed in the encoding {error.encoding} of the "
            "terminal; set PYTHONIOENCODING=utf-8, or write to a file or pipe, which get UTF-8"
        ) from None
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding != encoding:
        sys.stdout.reconfigure(encoding=encoding)
    sys.stdout.write(text)


@contextmanager
def discard_output() -> Iterator[None]:
    """Discard all output of the block; of several ranks only the first prints."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,  # noqa: PTH123
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


@contextmanager
def exit_with_status() -> Iterator[None]:
    """Run the work of a command in the block, then exit with its status.

    An error of the user is printed without a traceback, with status 2; so is a stdout that cannot
    be written. Ctrl-C has status 130, SIGTERM 143, SIGHUP 129, a closed pipe 141. Signals are
    raised as exceptions, so half-written files are removed.
    """

    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    signals, status = CaughtSignals(interrupt), 0
    try:
        with signals:
            _open_streams()
            yield
            sys.stdout.flush()
    except BrokenPipeError:
        status = EXIT_BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        report = report_of(error) or Report()
        status, message = _exit_status(error, signals.last, report.prefix)
        if not report.is_printed:
            if message is None:
                raise
            print_error(message)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python flushes again at its exit, which must not fail
                with suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if status:
        sys.exit(status)


def _exit_status(
    error: BaseException, signal_number: int | None, prefix: str
) -> tuple[int, str | None]:
    """Return the exit status of an error, and its message; None for a fault of foretaste."""
    if isinstance(error, Interrupted):
        return EXIT_SIGNALLED + error.signal_number, str(error)
    # An interrupted library may raise another error, as pandas does during its import.
    if signal_number is not None or isinstance(error, KeyboardInterrupt):
        return EXIT_SIGNALLED + (signal_number or signal.SIGINT), "interrupted"
    if not isinstance(error, ForetasteError | OSError):
        return 1, None
    nameless = isinstance(error, OSError) and error.filename is None and error.strerror
    text = f"the output cannot be written: {nameless}" if nameless else str(error)
    return EXIT_MISTAKE, f"error: {prefix}{text}"


def _open_streams() -> None:
    """Open closed streams on the null device; ForetasteError if stdout is closed."""
    # Otherwise the next opened file would get the number of the stream, and with it all that a
    # library prints there.
    is_stdout_closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal's encoding may lack characters
    if is_stdout_closed:
        raise ForetasteError("stdout is closed, so there is nowhere to print; try >/dev/null")

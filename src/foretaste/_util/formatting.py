"""Formatting of numbers, values and suggestions in messages, and of tables in notebooks."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from html import escape
from itertools import islice
from pathlib import Path

_LONGEST_SHOWN = 200

_NUM_ENTRIES_READ = 10_000


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: 1 user, 2,000 users."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def labelled_lines(heading: str, lines: Sequence[tuple[str, str]]) -> str:
    """Return a heading and, below it, aligned labels and values."""
    width = max(len(label) for label, _ in lines)
    return "\n".join([heading, *(f"  {label:{width}}  {value}" for label, value in lines)])


def memory(num_bytes: float) -> str:
    """Return an amount of memory, rounded: 4.4 GiB, 310 MiB."""
    mib = num_bytes / 2**20
    return f"{mib / 1024:,.1f} GiB" if mib >= 1000 else f"{max(mib, 1):,.0f} MiB"


def duration(seconds: float | None) -> str:
    """Return hours, minutes and seconds: 0:01:20; -:--:-- if the time is unknown or endless."""
    if seconds is None or seconds > timedelta.max.total_seconds():
        return "-:--:--"
    return str(timedelta(seconds=round(seconds)))


def compact(number: float) -> str:
    """Return a number in three digits: 1.31 M, 12.1 k, 830."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # a smaller number rounds to 999 of the unit below
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


_END = r"(?=[:;,.)]*(?:[\s'\"]|$))"
_SECRETS = (
    # //user:secret@host, also with the one slash that `Path` leaves and without the first colon. A
    # secret may hold a blank, unless the colon begins a port or ends a name.
    (r"((?:\w:|/|sql)/[^\s:/@'\"]*):(?:\S*|(?![\d\s])(?:(?!://)[^'\"])*?)@", r"\1@"),
    # The parameters of a URL, such as a signed one's.
    (rf"(\b[a-z][\w+.-]*:/[^\s?'\"]*)\?[^\s'\"]*?=[^\s'\"]*?{_END}", r"\1"),
    (
        r"(\b[\w.-]*(?:password|passwd|pwd|passphrase|token|secret|signature|credentials?|"
        r"(?:access|account|api)[_-]?key)\s*=\s*)"
        rf"(?:'[^']*'|\"[^\"]*\"|[^\s;&,'\"]+?(?:(?=[;&,])|{_END}))",
        r"\1...",
    ),
)


def without_secrets(text: str) -> str:
    """Return a message or a source's name without passwords, tokens and parameters of URLs."""
    for pattern, kept in _SECRETS if ":" in text or "=" in text else ():
        text = re.sub(pattern, kept, text, flags=re.IGNORECASE | re.DOTALL)
    return text


def option_words(settings: Mapping[str, object]) -> list[str]:
    """Return settings as the words of command-line options; None is a default and has no option."""
    words = []
    for name, value in settings.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, tuple | list):
            parts = list(map(str, value))
            # A column may be called -, which alone would be an option.
            words += [f"--{option}", *([",".join(parts)] if name == "columns" else parts)]
        elif value is not None:
            words += [f"--{option}", str(value)]
    return words


def short_repr(value: object) -> str:
    """Return a value for a message: quoted, on one line, and cut if it is long; of a table, the
    type alone."""
    if hasattr(value, "shape") and hasattr(value, "columns"):
        return f"a {type(value).__name__}"
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        return f"{value[:_LONGEST_SHOWN]!r}... ({len(value):,} characters)"
    text = repr(value)
    if not isinstance(value, str):
        text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def similar_names(
    name: str, names: Collection[str], most: int = 1, similarity: float = 0.6
) -> list[str]:
    """Return the ``names`` with the most similar spelling, ignoring case; the best first."""
    by_lower = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), by_lower, most, similarity)
    return [by_lower[lower] for lower in found]


def did_you_mean(path: Path, *, holding: str = "") -> str:
    """Return ``; did you mean runs/vae?`` for a path that does not exist, or an empty text.

    It compares names in the folders on the path. With ``holding``, only directories that have a
    file of this name are suggested.
    """
    if any(sign in path.name for sign in "*?["):
        return ""
    # Without a suggestion for a folder that cannot be read, and for an impossible path.
    with suppress(OSError, ValueError):
        for meant in _paths_like(path):
            if not holding or (meant / holding).is_file():
                return f"; did you mean {meant}?"
    return ""


def _paths_like(path: Path) -> Iterator[Path]:
    if not path.name:
        return
    for folder in [path.parent] if path.parent.is_dir() else _paths_like(path.parent):
        if not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _NUM_ENTRIES_READ)]
        for name in similar_names(path.name, names, most=10):
            yield folder / name


def html_table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], note: str | None = None
) -> str:
    """Return an HTML table for ``_repr_html_``, with all text escaped; ``note`` is below it."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<table><caption>{escape(caption)}</caption>{table}</table>{below}"

"""The shape of lists: lines of a user id and items, of different lengths."""

from __future__ import annotations

import re
from pathlib import Path

from foretaste.errors import InputError

SEPARATOR = " *[,\t] *| +"
"""Pattern of the separator between the fields of a line. A field between two commas may be empty, a
field between two blanks may not."""

_MARKS = ('"', "::", ";", "|", "\t", ",")
_NUM_CHARACTERS_SEEN = 1 << 14


def fields_of(line: str) -> list[str]:
    """Return the ids in a line."""
    text = line.lstrip(" ").rstrip(" ,\t\r\n")
    return re.split(SEPARATOR, text) if text else []


def hint_lists(error: InputError, path: Path, text: str) -> InputError:
    """Return the error about the fields of a text file, or an error that names the layout if
    ``text``, the start of the file, looks like lists."""
    lines = [line for line in text[:_NUM_CHARACTERS_SEEN].splitlines() if line.strip(" ,\t")]
    if len(lines) > 1 and len(text) > _NUM_CHARACTERS_SEEN:
        lines.pop()
    rows = [*map(fields_of, lines)]
    if not rows:
        return error
    ids = [field for row in rows for field in row]
    # Names and titles in other tables have blanks.
    mark = next((mark for mark in _MARKS if mark in lines[0]), " ")
    has_integers = all(re.fullmatch("-?[0-9]+", one) for one in ids)
    lengths = {*map(len, rows)} if has_integers else {line.count(mark) for line in lines}
    is_ragged = len(lengths) > 1 and mark in " ,\t"
    option = "--layout lists (layout='lists' in Python)"
    if has_integers and is_ragged:
        return InputError(
            f"{path}: its lines have different lengths, like lines with a user id and all items of "
            f"that user; {option} reads these"
        )
    # An integer of more digits may be a time, so these are the four columns of ratings.
    has_many = has_integers and len(rows[0]) > 3 and max(map(len, ids)) < 9
    if is_ragged or has_many:
        message = str(error).removesuffix(".")
        return InputError(
            f"{message}. If a line has a user id and all items of that user, {option} reads it"
        )
    return error

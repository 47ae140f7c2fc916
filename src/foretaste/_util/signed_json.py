"""JSON text that ends with its own sha256, so that a changed or cut text is noticed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from foretaste._util.documents import Json
from foretaste._util.formatting import short_repr

SHA256 = "sha256"
"""The last key; its value is the digest, in hexadecimal, of all text before that value."""

_ENDING = re.compile(rf'"{SHA256}": "([0-9a-f]{{64}})"\n?\}}\n\Z')


def signed_text(document: Mapping[str, Json], *, indent: int | None = None) -> str:
    """Return a JSON object as text, one line or indented, with `SHA256` and a newline last."""
    unsigned = {**document, SHA256: ""}
    text = json.dumps(unsigned, indent=indent, ensure_ascii=False, allow_nan=False)
    body, mark, end = text.rpartition(f'"{SHA256}": "')
    return f"{body}{mark}{_sha256(body)}{end}\n"


def check_signed(text: str) -> str:
    """Return the digest at the end of ``text``; ValueError if ``text`` was changed since."""
    ending = _ENDING.search(text)
    if ending is None or ending[1] != _sha256(text[: ending.start()]):
        raise ValueError(f'its text does not match its "{SHA256}"')
    return ending[1]


def other_format(found: object, reads: int, again: str) -> str:
    """Return the end of a message on another format; ``again`` is the advice for an older one."""
    is_newer = isinstance(found, int) and found > reads
    advice = "update foretaste" if is_newer else again
    return f"in format {short_repr(found)}, and this foretaste reads format {reads}; {advice}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""JSON that ends with its own digest."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

import pytest

from foretaste._util.signed_json import check_signed, signed_text

DOCUMENT = {"name": "Amélie", "sha256 of parts": ["sha256", 1e-8], "deeper": {"sha256": "no"}}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_written_document_is_read(indent: int | None) -> None:
    text = signed_text(DOCUMENT, indent=indent)
    check_signed(text)
    values = json.loads(text)
    before = text[: text.rindex('"sha256"')]
    assert values.pop("sha256") == hashlib.sha256(before.encode()).hexdigest()
    assert values == DOCUMENT
    assert (text.count("\n") == 1) == (indent is None)


def test_an_older_digest_is_replaced() -> None:
    assert signed_text(json.loads(signed_text(DOCUMENT))) == signed_text(DOCUMENT)


def test_every_bit_that_was_flipped_is_noticed() -> None:
    sound = signed_text(DOCUMENT, indent=2).encode()
    for bit in range(8 * len(sound)):
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        with suppress(UnicodeDecodeError):
            text = changed.decode()
            with pytest.raises(ValueError, match="sha256"):
                check_signed(text)


def test_text_that_was_cut_short_or_added_to_is_noticed() -> None:
    sound = signed_text(DOCUMENT, indent=2)
    for wrong in (*(sound[:end] for end in range(len(sound))), sound + " ", sound * 2):
        with pytest.raises(ValueError, match="sha256"):
            check_signed(wrong)

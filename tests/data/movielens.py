"""Small copies of MovieLens: names, formats and archives."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace

import pytest

from foretaste.data.movielens import NAMED_SETS

NUM_USERS = 24
NUM_ITEMS = 30
LAZY_USER = 99
"""Has too few ratings for the reference's filters."""

TITLES = ('"Amélie", or The Fabulous Destiny (2001)', "Toy Story (1995)", "Café | Bar (1994)")
"""Titles of items 1, 2 and 3: commas, a leading quote, a letter beyond ASCII; except in ml-100k a
bar."""

_GENRES = "|".join("0" * 19)


def ratings() -> list[tuple[int, int, int, int]]:
    """User, item, rating and time of every rating."""
    active = [
        (user, item, 1 + (user + item) % 5, 900_000_000 + 50 * (item == last_item(user)))
        for user in range(1, NUM_USERS + 1)
        for item in range(1, NUM_ITEMS + 1)
        if (user + item) % 7 or item == last_item(user)
    ]
    return active + [(LAZY_USER, item, 5, 900_000_000 + item) for item in range(1, 6)]


def last_item(user: int) -> int:
    """The item that an active user rated after all others."""
    return user % NUM_ITEMS + 1


def titles(name: str) -> list[str]:
    """One title for each item, in the spelling of the set."""
    found = [*TITLES, *(f"Film {item} (2000)" for item in range(len(TITLES) + 1, NUM_ITEMS + 1))]
    return [title.replace(" |", ",") for title in found] if name == "ml-100k" else found


def files(name: str) -> dict[str, bytes]:
    """The two files of a set that are read, as bytes."""
    if name == "ml-100k":
        items = enumerate(titles(name), start=1)
        return {
            "u.data": _lines("\t", ratings()),
            "u.item": _lines("|", [(item, title, "01-Jan-1995", "", "http://x/?y", _GENRES)
                                   for item, title in items], encoding="latin-1"),
        }  # fmt: skip
    movies = [(item, title, "Comedy|Drama") for item, title in enumerate(titles(name), start=1)]
    if name == "ml-1m":
        return {
            "ratings.dat": _lines("::", ratings()),
            "movies.dat": _lines("::", movies, encoding="latin-1"),
        }
    quoted = [
        (item, '"' + title.replace('"', '""') + '"', genres) for item, title, genres in movies
    ]
    return {
        "ratings.csv": b"userId,movieId,rating,timestamp\r\n" + _lines(",", ratings(), "\r\n"),
        "movies.csv": b"movieId,title,genres\r\n" + _lines(",", quoted, "\r\n"),
    }


def archive(name: str, **changed: bytes) -> bytes:
    """A set's archive: its files and others that nobody needs."""
    members = {f"{name}/{file}": content for file, content in (files(name) | changed).items()}
    members |= {f"{name}/README": b"terms of use", "../outside.txt": b"must not be written"}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for member, content in members.items():
            zip_file.writestr(zipfile.ZipInfo(member), content)
    return packed.getvalue()


def expect(monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> None:
    """Replace the published checksum of a set's archive by the checksum of ``content``."""
    md5 = hashlib.md5(content).hexdigest()
    monkeypatch.setitem(NAMED_SETS, name, replace(NAMED_SETS[name], md5=md5))


def _lines(
    delimiter: str, rows: list[tuple[object, ...]] | list[tuple[int, int, int, int]],
    end: str = "\n", encoding: str = "utf-8",
) -> bytes:  # fmt: skip
    return "".join(delimiter.join(map(str, row)) + end for row in rows).encode(encoding)

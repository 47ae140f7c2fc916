"""Public data sets by name: what they are called, how they are written, how they are prepared."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretaste._util.formatting import did_you_mean
from foretaste.data.config import PrepareConfig
from foretaste.errors import InputError, SettingError

# What may be meant for a set or a folder; a file's name has an ending, a pattern's has more.
_WORD = re.compile(r"[\w/-]{1,100}")


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """One archive: its sum, and the two files of it that are read."""

    name: str
    """Also of the archive, and of the folder in it."""

    md5: str
    """Of the archive, as published beside it."""

    interactions: str
    items: str

    format: Mapping[str, Any]
    """Settings of preparation that say how the interactions are written."""

    items_format: Mapping[str, Any]
    """The same of the items."""

    num_heldout_users: int | None = None
    """Users that the reference holds out for validation, and as many for test, under
    held-out-users."""

    @property
    def archive(self) -> str:
        return f"{self.name}.zip"

    @property
    def is_unpacked_here(self) -> bool:
        """Whether the working directory holds the set's own folder."""
        return (Path(self.name) / self.interactions).is_file()

    def settings(self, config: PrepareConfig, *, with_items: bool) -> PrepareConfig:
        """``config`` for this set: how it is written, and what the reference does where nothing
        else is asked for. SettingError where it says of the files what is not so."""
        said = {**self.format, **(self.items_format if with_items else {})}
        for setting, value in said.items():
            asked = getattr(config, setting)
            if asked not in (getattr(PrepareConfig, setting), value):
                raise SettingError(
                    f"{setting} is {asked!r}, but {self.name} is written in a known way; leave it "
                    "out"
                )
        if config.filters == "auto":
            said["filters"] = "reference"
        if config.protocol == "held-out-users" and config.num_heldout_users is None:
            said["num_heldout_users"] = self.num_heldout_users
        return replace(config, **said)


def _with_headers(name: str, md5: str, num_heldout_users: int | None = None) -> NamedSet:
    return NamedSet(
        name=name, md5=md5, interactions="ratings.csv", items="movies.csv",
        format={}, items_format={}, num_heldout_users=num_heldout_users,
    )  # fmt: skip


_COLUMNS = ("user_id", "item_id", "rating", "timestamp")

# The sums are those of the .md5 files beside the archives.
NAMED_SETS = {
    named.name: named
    for named in (
        NamedSet(
            name="ml-100k",
            md5="0e33842e24a9c977be4e0107933c0723",
            interactions="u.data",
            items="u.item",
            format={"delimiter": "\t", "columns": _COLUMNS},
            items_format={
                "items_delimiter": "|",
                "items_columns": ("item_id", "title", "release_date", *["-"] * 21),
                "items_encoding": "latin-1",
                "items_quote": "none",
            },
        ),
        NamedSet(
            name="ml-1m",
            md5="c4d9eecfca2ab87c1945afe126590906",
            interactions="ratings.dat",
            items="movies.dat",
            format={"delimiter": "::", "columns": _COLUMNS},
            items_format={
                "items_delimiter": "::",
                "items_columns": ("item_id", "title", "genres"),
                "items_encoding": "latin-1",
            },
        ),
        _with_headers("ml-20m", "cd245b17a1ae2cc31bb14903e1204af3", num_heldout_users=10_000),
        _with_headers("ml-25m", "6b51fb2759a8657d3bfcbfc42b592ada"),
        _with_headers("ml-32m", "d472be332d4daa821edc399621853b57"),
    )
}


def named_set(source: Any, source_dir: Path | str | None = None) -> NamedSet | None:
    """The set that ``source`` names; None where it is a path, or anything else.

    A file or folder that has the name of a set goes before the set, unless it is the set's own
    folder, unpacked. Raises SettingError where ``source_dir`` is given for what is not a set,
    InputError where a word names neither a set nor anything that is there.
    """
    if isinstance(source, Sequence) and not isinstance(source, str) and len(source) == 1:
        source = source[0]
    named = NAMED_SETS.get(str(source)) if isinstance(source, str | Path) else None
    if source_dir is not None:
        if named is None:
            raise SettingError(
                "source_dir belongs to the named sets, and the source is none of "
                f"{', '.join(NAMED_SETS)}"
            )
        return named
    if named is None and isinstance(source, str | Path) and _WORD.fullmatch(str(source)):
        _refuse_unknown(str(source))
    is_taken = named is not None and Path(named.name).exists() and not named.is_unpacked_here
    return None if is_taken else named


def _refuse_unknown(word: str) -> None:
    # Unlike Path's, this raises nothing, whoever may look into the folders on the way.
    if not os.path.exists(word):  # noqa: PTH110
        raise InputError(
            f"{word}: there is no such file or folder, nor a named set of that name; the named "
            f"sets are {', '.join(NAMED_SETS)}{did_you_mean(Path(word))}"
        )

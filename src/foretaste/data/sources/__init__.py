"""Sources of raw rows: files named by a path, a folder or a pattern, databases, frames."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretaste._util.files import is_name_text
from foretaste._util.formatting import did_you_mean, shown
from foretaste.data.config import FileFormat
from foretaste.data.sources.arrow import Frame, open_parquet, refuse_rows
from foretaste.data.sources.database import Database, is_database
from foretaste.data.sources.json_lines import JsonLinesFile
from foretaste.data.sources.lists import ListsFile
from foretaste.data.sources.source import READ_COMPRESSIONS, Source
from foretaste.data.sources.text import TextFile, whole_lines
from foretaste.errors import InputError, SettingError

# Files as the NCF paper publishes them.
_NCF_SUFFIX = ".rating"
_NCF_COLUMNS = ("user_id", "item_id", "rating", "timestamp")

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", _NCF_SUFFIX)
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
PARQUET_SUFFIXES = (".parquet", ".pq")

TABLE = "table:"
_NAME_OF_SPARK = re.compile(rf"(?:[a-z][a-z0-9+.-]+:/|{TABLE}).+", re.DOTALL)
# What `Path` makes of s3a://bucket: s3a:/bucket.
_ONE_SLASH = re.compile(r"(?<!^file):/(?!/)")


Opener = Callable[[str, FileFormat], Source]
"""Function that opens a name of an engine, such as s3a://bucket/plays, in a format."""


def open_sources(
    source: Any, format: FileFormat, table: str = "table", opener: Opener | None = None
) -> list[Source]:
    """The files of a path, a folder, a pattern or a sequence of these; the rows of a database; or a
    frame.

    ``format`` has the format of text files and the query of a database. `Frame.open` defines the
    frames; errors call them ``table``. A name of Spark's that is no file here goes to ``opener``.
    Raises InputError for a source that is missing, empty or in a format that is not read.
    """
    if isinstance(source, str | Path):
        if is_database(str(source)):
            return [Database.read(str(source), format.query)]
        if _NAME_OF_SPARK.fullmatch(str(source)) and not os.path.exists(source):  # noqa: PTH110
            if opener is None:
                raise InputError(
                    f"{source}: is no file here; names such as s3a://bucket/plays and "
                    "table:shop.plays are read by --engine spark (engine='spark' in Python)"
                )
            return [opener(_ONE_SLASH.sub("://", str(source)), format)]
        return [_open_file(path, format) for path in _expand(Path(source))]
    if isinstance(source, Sequence):
        refuse_rows(source)
        opened = [file for part in source for file in open_sources(part, format, table, opener)]
        if not opened:
            raise InputError("there is no source; name at least one file")
        return opened
    return [Frame.open(source, table)]


def open_lines(path: Path, name: str, format: FileFormat) -> Source:
    """A text file with whole lines as its only column, ``name``."""
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    return TextFile.open(path, whole_lines(format, name))


def open_items(source: Any, format: FileFormat, opener: Opener | None = None) -> Source:
    """The one file, table or frame that describes items, with all columns; InputError if ``source``
    names several."""
    opened = open_sources(source, format, "items table", opener)
    if len(opened) > 1:
        raise InputError(f"items must be one file, and {source} names {len(opened)}")
    return opened[0].reading(opened[0].columns)


def check_format_acts(format: FileFormat, sources: Sequence[Source], items: Source | None) -> None:
    """Raise SettingError if ``format`` was given and no source is text, or if it has a query and no
    source is a database. An encoding alone may be that of ``items``."""
    if format.query is not None and not any(isinstance(source, Database) for source in sources):
        raise SettingError(
            f"query is {shown(format.query)}, and {sources[0].name} is no database; leave it out"
        )
    if not format.is_default and not any(source.read_as for source in sources):
        encoding = FileFormat(encoding=format.encoding, query=format.query)
        if format == encoding and items is not None and items.read_as:
            return
        raise SettingError(
            "--layout, --delimiter, --columns, --encoding and --quote are for text files, and "
            f"{sources[0].name} is none; leave them out"
        )


def _expand(path: Path) -> list[Path]:
    """The files of a path, a folder or a pattern."""
    # `os.path` and not `Path`: its functions raise nothing, even for odd or very long names.
    if os.path.isfile(path):  # noqa: PTH113
        return [path]
    if os.path.isdir(path):  # noqa: PTH112
        return _files_within(path)
    if os.path.exists(path):  # noqa: PTH110
        raise InputError(
            f"{path}: is neither a file nor a folder but a pipe, socket or device; save what it "
            "holds in a file"
        )
    # `glob` and not `Path.glob`, which takes no absolute patterns.
    found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    files = [Path(name) for name in found if os.path.isfile(name)]  # noqa: PTH113
    if not files:
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    return files


def _files_within(folder: Path) -> list[Path]:
    """All files of a folder and its folders, without hidden names (``.`` or ``_`` first, as in
    ``_SUCCESS``) and without prepared datasets and runs."""
    if (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: is a prepared dataset, not raw data; train on it as it is")
    if (folder / "metrics.jsonl").is_file():
        raise InputError(f"{folder}: is a run, not data; name the dataset that it was trained on")
    paths = sorted(folder.rglob("*"))
    outputs = {
        path
        for path in paths
        for names in (("manifest.json", "items.parquet"), ("metrics.jsonl", "config.json"))
        if all((path / name).is_file() for name in names)
    }
    files = [
        path
        for path in paths
        if path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and outputs.isdisjoint(path.parents)
    ]
    if not files:
        found = "holds prepared datasets or runs, and no raw data"
        raise InputError(f"{folder}: {found if outputs else 'is a folder without files in it'}")
    return files


def _open_file(path: Path, format: FileFormat) -> Source:
    if not is_name_text(path):
        raise InputError(f"{path}: its name is not UTF-8 text; rename it")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PARQUET_SUFFIXES:
        return open_parquet(path)
    if format.layout == "lists":
        return ListsFile.open(path, format)
    if suffixes and suffixes[-1] in READ_COMPRESSIONS:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    is_described = format.delimiter is not None or format.columns is not None
    if suffix == _NCF_SUFFIX and not is_described:
        return TextFile.open(path, replace(format, delimiter="\t", columns=_NCF_COLUMNS))
    if suffix in _JSON_SUFFIXES and not is_described:
        return JsonLinesFile.open(path, format)
    is_text = suffix in _TEXT_SUFFIXES or is_described or format.is_items
    if is_text and suffix not in PARQUET_SUFFIXES:
        return TextFile.open(path, format)
    known = ", ".join((*_TEXT_SUFFIXES, *_JSON_SUFFIXES, *PARQUET_SUFFIXES))
    raise InputError(
        f"{path}: its name does not tell its format; expected {known}, text also with "
        f"{' or '.join(READ_COMPRESSIONS)}. If it is text, give --delimiter"
    )

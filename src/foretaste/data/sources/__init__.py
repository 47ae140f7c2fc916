"""Sources of raw rows: files of a path, a folder or a pattern, databases, and frames."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

from foretaste._util.files import is_name_text
from foretaste._util.formatting import did_you_mean, pluralize, short_repr
from foretaste.data.config import FileFormat
from foretaste.data.sources.arrow import Frame, open_parquet, refuse_rows
from foretaste.data.sources.database import Database, is_database
from foretaste.data.sources.json_lines import JsonLinesFile
from foretaste.data.sources.lists import ListsFile
from foretaste.data.sources.paths import list_files
from foretaste.data.sources.signatures import refuse_by_signature
from foretaste.data.sources.source import PARQUET_SUFFIXES, READ_COMPRESSIONS, Source
from foretaste.data.sources.text import TextFile, whole_lines
from foretaste.errors import InputError, SettingError

# The suffix of the files that the NCF paper publishes.
_NCF_SUFFIX = ".rating"
_NCF_COLUMNS = ("user_id", "item_id", "rating", "timestamp")

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".inter", ".item", _NCF_SUFFIX)
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

TABLE = "table:"
_NAME_OF_SPARK = re.compile(rf"(?:[a-z][a-z0-9+.-]+:/|{TABLE}).+", re.DOTALL)
# `Path` turns s3a://bucket into s3a:/bucket.
_ONE_SLASH = re.compile(r"(?<!^file):/(?!/)")


Opener = Callable[[str, FileFormat], Source]
"""Function that opens an engine's name, such as s3a://bucket/plays, in a format."""


def open_sources(
    source: object, format: FileFormat, table: str = "table", opener: Opener | None = None
) -> list[Source]:
    """Return the sources: files of a path, folder, pattern or sequence, a database, or a frame.

    ``format`` has the format of text files and the query of a database. `Frame.open` defines the
    frames; errors call them ``table``. ``opener`` gets a name of Spark's that is no file here.
    Raises InputError for a source that is missing, empty or in an unsupported format.
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
        return _open_files(Path(source), format)
    if isinstance(source, Sequence):
        refuse_rows(source)
        opened = [file for part in source for file in open_sources(part, format, table, opener)]
        if not opened:
            raise InputError("there is no source; name at least one file")
        return each_once(opened)
    return [Frame.open(source, table)]


def open_lines(path: Path, name: str, format: FileFormat) -> Source:
    """Return a text file with whole lines as its only column, ``name``."""
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    refuse_by_signature(path)
    return TextFile.open(path, whole_lines(format, name))


def open_items(source: object, format: FileFormat, opener: Opener | None = None) -> Source:
    """Return the one source that describes items; InputError if ``source`` names several."""
    opened = open_sources(source, format, "items table", opener)
    if len(opened) > 1:
        raise InputError(f"items must be one file, and {source} names {len(opened)}")
    return opened[0].reading(opened[0].columns)


def check_format_acts(format: FileFormat, sources: Sequence[Source], items: Source | None) -> None:
    """Raise SettingError if ``format`` was given and no source is text, or if ``format`` has a
    query and no source is a database. An encoding alone may belong to ``items``."""
    if format.query is not None and not any(isinstance(source, Database) for source in sources):
        raise SettingError(
            f"query is {short_repr(format.query)}, and {sources[0].name} is no database; leave it "
            "out"
        )
    if not format.is_default and not any(source.read_as for source in sources):
        encoding = FileFormat(encoding=format.encoding, query=format.query)
        if format == encoding and items is not None and items.read_as:
            return
        raise SettingError(
            "--layout, --delimiter, --columns, --encoding and --quote are for text files, and "
            f"{sources[0].name} is none; leave them out"
        )


def _open_files(name: Path, format: FileFormat) -> list[Source]:
    """Return the files of a path, a folder or a pattern."""
    files, left_out = list_files(name)
    first, *others = each_once([_open_file(path, format) for path in files])
    return [replace(first, left_out=tuple(map(str, left_out))), *others]


def each_once(sources: Sequence[Source]) -> list[Source]:
    """Return the sources with each file or frame once, and its other names."""
    found: dict[Hashable, Source] = {}
    for source in sources:
        first = found.setdefault(source.identity, source)
        if first is not source:
            names = (*first.other_names, source.name, *source.other_names)
            left_out = (*first.left_out, *source.left_out)
            found[source.identity] = replace(first, other_names=names, left_out=left_out)
    return [*found.values()]


def describe_files(sources: Sequence[Source]) -> dict[str, str]:
    """Return a note on files named twice, and on unread files of a folder."""
    again = [(name, source.name) for source in sources for name in source.other_names]
    left_out = sorted({name for source in sources for name in source.left_out})
    notes = []
    if again:
        name, first = again[0]
        what = "named again" if name == first else f"{first} again"
        notes.append(f"{name} is {what}, and counts once ({pluralize(len(again), 'name')})")
    if left_out:
        notes.append(
            f"{left_out[0]} is not read, because its name is no name of data "
            f"({pluralize(len(left_out), 'file')})"
        )
    return {"files": "; ".join(notes)} if notes else {}


def _open_file(path: Path, format: FileFormat) -> Source:
    if not is_name_text(path):
        raise InputError(f"{path}: its name is not UTF-8 text; rename it")
    refuse_by_signature(path, is_json=_suffix_of(path) in _JSON_SUFFIXES)
    if path.suffix.lower() in PARQUET_SUFFIXES:
        return open_parquet(path)
    if format.layout == "lists":
        return ListsFile.open(path, format)
    suffix = _suffix_of(path)
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


def _suffix_of(path: Path) -> str:
    """Return the ending of a name before the ending of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in READ_COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""

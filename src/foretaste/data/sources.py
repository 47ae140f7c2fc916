"""Where raw rows come from: the files that a path, a folder or a pattern names, and frames."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretaste._util.formatting import did_you_mean
from foretaste.data.config import FileFormat
from foretaste.data.directory import is_name_text
from foretaste.data.folders import fixed_folder, with_folder_columns
from foretaste.data.frames import refuse_rows, to_arrow
from foretaste.data.json_lines import JSON_SUFFIXES, read_json_lines
from foretaste.data.refused import READ_COMPRESSIONS, refuse_by_name
from foretaste.data.scans import Scan, scan_frame, scan_parquet, scan_text
from foretaste.errors import InputError, SettingError

NCF_SUFFIX = ".rating"
"""Files as the NCF paper publishes them."""

_NCF_COLUMNS = ("user_id", "item_id", "rating", "timestamp")
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", NCF_SUFFIX)
_PARQUET_SUFFIXES = (".parquet", ".pq")


def open_scans(source: Any, format: FileFormat) -> list[Scan]:
    """A scan of every file that a path, a folder, a pattern or a sequence of them names, or of a
    frame; ``format`` says how those that are text are written.

    Frames are whatever `foretaste.data.frames.to_arrow` takes. Raises InputError naming what is
    missing, empty or of a format that is not read.
    """
    if isinstance(source, str | Path):
        paths, below = _expand(Path(source))
        for path in paths:
            refuse_by_name(path)
        scans = [_open_file(path, format) for path in paths]
        if below is None:
            return scans
        return [
            with_folder_columns(scan, path, below) for scan, path in zip(scans, paths, strict=True)
        ]
    if isinstance(source, Sequence):
        refuse_rows(source)
        scans = [scan for part in source for scan in open_scans(part, format)]
        if not scans:
            raise InputError("there is no source; name at least one file")
        return scans
    table = to_arrow(source)
    if not table.num_columns:
        raise InputError(
            "table: is empty; it must have a column of users and one of items, and a row for each "
            "interaction"
        )
    return [scan_frame(table)]


def check_format_acts(format: FileFormat, scans: Sequence[Scan]) -> None:
    """Raise SettingError where ``format`` was given and no scan is of text."""
    if not format.is_default and all(scan.dialect is None for scan in scans):
        options = ", ".join(map(format.option, ("delimiter", "columns", "encoding")))
        raise SettingError(
            f"{options} and {format.option('quote')} are for text files, and {scans[0].name} is "
            "none; leave them out"
        )


def _expand(path: Path) -> tuple[list[Path], Path | None]:
    """The files that a path names, and the folder below which it names several."""
    # Unlike those of Path, these raise nothing, however odd or long a name is.
    if os.path.isfile(path):  # noqa: PTH113
        return [path], None
    if os.path.isdir(path):  # noqa: PTH112
        return _files_within(path), path
    if os.path.exists(path):  # noqa: PTH110
        raise InputError(
            f"{path}: is neither a file nor a folder but a pipe, socket or device; save what it "
            "holds in a file"
        )
    # Path.glob takes no absolute patterns.
    found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    files = [Path(name) for name in found if os.path.isfile(name)]  # noqa: PTH113
    if not files:
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    return files, fixed_folder(path)


def _files_within(folder: Path) -> list[Path]:
    """Every file of a folder and the folders in it; ``.`` and ``_`` hide, as in ``_SUCCESS``, and
    datasets and runs are left out."""
    if (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: is a prepared dataset, not raw data; train on it as it is")
    if (folder / "metrics.jsonl").is_file():
        raise InputError(f"{folder}: is the directory of a run, which holds no raw data")
    paths = sorted(folder.rglob("*"))
    made = {path for path in paths if _is_made_here(path)}
    files = [
        path
        for path in paths
        if path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and made.isdisjoint(path.parents)
    ]
    if not files:
        found = "holds prepared datasets or runs, and no raw data"
        raise InputError(f"{folder}: {found if made else 'is a folder without files in it'}")
    return files


def _is_made_here(folder: Path) -> bool:
    """Whether it is a prepared dataset or a run, such as lie in ``datasets`` and ``runs``."""
    return any(
        all((folder / name).is_file() for name in names)
        for names in (("manifest.json", "items.parquet"), ("metrics.jsonl", "config.json"))
    )


def _open_file(path: Path, format: FileFormat) -> Scan:
    if not is_name_text(path):
        raise InputError(f"{path}: its name is not UTF-8 text; rename it")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PARQUET_SUFFIXES:
        return scan_parquet(path)
    if suffixes and suffixes[-1] in READ_COMPRESSIONS:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    is_described = format.delimiter is not None or format.columns is not None
    if suffix == NCF_SUFFIX and not is_described:
        return scan_text(path, replace(format, delimiter="\t", columns=_NCF_COLUMNS))
    if suffix in JSON_SUFFIXES and not is_described:
        return scan_text(path, _whole_lines(format, "line"), read_json_lines)
    if suffix in _TEXT_SUFFIXES or (is_described and suffix not in _PARQUET_SUFFIXES):
        return scan_text(path, format)
    known = ", ".join((*_TEXT_SUFFIXES, *JSON_SUFFIXES, *_PARQUET_SUFFIXES))
    raise InputError(
        f"{path}: cannot tell its format by its name; expected {known}, text also with "
        f"{' or '.join(READ_COMPRESSIONS)}. {format.option('delimiter')} says that it is text"
    )


def scan_lines(path: Path, name: str, format: FileFormat) -> Scan:
    """A scan of whole lines, as the one column ``name``."""
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    return scan_text(path, _whole_lines(format, name))


def _whole_lines(format: FileFormat, name: str) -> FileFormat:
    return replace(format, delimiter="\x01", columns=(name,), quote="none")

"""The files of a path, a folder or a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from foretaste._util.formatting import did_you_mean
from foretaste.data.manifest import is_dataset
from foretaste.data.sources.source import PARQUET_SUFFIXES, unreadable
from foretaste.errors import InputError

_LEFTOVERS = (".tmp", ".temp", ".bak", ".orig", ".swp", ".partial")

# Folders whose log says which of their files count. The other files have removed rows.
TABLE_LOGS = (
    ("a Delta", "_delta_log"),
    ("a Hudi", ".hoodie"),
    ("an Iceberg", "metadata/*.metadata.json"),
)


def list_files(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a path, folder or pattern, and the files of a folder that are no data.

    Raises InputError if no file is found, for a link that leads nowhere, and for the files of a
    table whose log says which files count.
    """
    files, left_out = _match_files(path)
    _refuse_tables(files)
    return files, left_out


def _match_files(path: Path) -> tuple[list[Path], list[Path]]:
    # The functions of `os.path`, unlike `Path`, raise nothing, even for odd or very long names.
    if os.path.isfile(path):  # noqa: PTH113
        return [path], []
    if os.path.isdir(path):  # noqa: PTH112
        return _files_within(path)
    if os.path.exists(path):  # noqa: PTH110
        raise InputError(
            f"{path}: is neither a file nor a folder but a pipe, socket or device; save what it "
            "holds in a file"
        )
    # `glob` is used because `Path.glob` accepts no absolute patterns. The shortest name of a file
    # is first, because a folder may be linked to itself.
    found = sorted(map(Path, glob.glob(str(path), recursive=True)), key=_by_depth)  # noqa: PTH207
    is_pattern = glob.has_magic(str(path))
    files = _only_existing(name for name in found if not (is_pattern and _is_hidden(name, path)))
    if not files:
        raise InputError(f"{path}: there is no such file{did_you_mean(path)}")
    return _without_other_files(files)


def _by_depth(name: Path) -> tuple[int, str]:
    return len(name.parts), str(name)


def _is_hidden(found: Path, pattern: Path) -> bool:
    """Return whether a name begins with ``_``, as ``_SUCCESS`` does, and the pattern does not."""
    first = next(at for at, part in enumerate(pattern.parts) if glob.has_magic(part))
    own, asked = found.parts[first:], pattern.parts[first:]
    return any(part.startswith("_") for part in own) and not any(
        part.startswith("_") for part in asked
    )


def _only_existing(names: Iterable[Path]) -> list[Path]:
    """Return the names that are files; InputError for a link that leads nowhere."""
    files = []
    for name in names:
        if os.path.isfile(name):  # noqa: PTH113
            files.append(name)
        # `exists` would also be false after 40 turns through a folder that is linked to itself.
        elif name.is_symlink() and not os.path.exists(os.path.realpath(name)):  # noqa: PTH110
            raise InputError(f"{name}: is a link that leads nowhere; remove the link or fix it")
    return files


def _files_within(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return all data files of a folder and its folders, without hidden names (``.`` or ``_``
    first, as in ``_SUCCESS``), prepared datasets and runs; then the files that are no data."""
    if is_dataset(folder):
        raise InputError(f"{folder}: is a prepared dataset, not raw data; train on it as it is")
    if _is_run(folder):
        raise InputError(f"{folder}: is a run, not data; name the dataset that it was trained on")
    outputs: list[Path] = []
    files = _only_existing(sorted(_walk_folder(folder, outputs)))
    if not files:
        found = "holds prepared datasets or runs, and no raw data"
        raise InputError(f"{folder}: {found if outputs else 'is a folder without files in it'}")
    return _without_other_files(files)


def _without_other_files(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the files named like data, or all files if none is; then the other files."""
    data = [file for file in files if not _is_leftover(file)]
    # The names in a folder of part-00000 have no endings.
    data = [file for file in data if file.suffix] or data or [*files]
    return data, sorted({*files} - {*data})


def _walk_folder(folder: Path, outputs: list[Path]) -> Iterator[Path]:
    """Yield the files below a folder. The walk follows links, and visits each folder once;
    ``outputs`` gets prepared datasets and runs."""

    def refuse(error: OSError) -> None:
        raise unreadable(str(error.filename), error)

    seen = set()
    for name, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        place, status = Path(name), os.stat(name)  # noqa: PTH116
        is_output = place != folder and (is_dataset(place) or _is_run(place))
        if is_output:
            outputs.append(place)
        if is_output or (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(one for one in folders if not one.startswith((".", "_")))
        yield from (place / one for one in names if not one.startswith((".", "_")))


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("metrics.jsonl", "config.json"))


def _is_leftover(file: Path) -> bool:
    """Return whether an editor, a broken writer or a program's log left this file."""
    is_log = file.name in ("manifest.json", "metrics.jsonl")
    return is_log or file.name.endswith("~") or file.suffix.lower() in _LEFTOVERS


def _refuse_tables(files: Iterable[Path]) -> None:
    """Raise InputError for Parquet files of a table with a log: removed rows would come back."""
    parents = {file.parent for file in files if file.suffix.lower() in PARQUET_SUFFIXES}
    real = {Path(os.path.realpath(parent)) for parent in parents}
    for folder in sorted({above for place in real for above in (place, *place.parents)}):
        for kind, log in TABLE_LOGS:
            if next(folder.glob(log), None) is not None:
                raise is_table(str(folder), kind, log)


def is_table(folder: str, kind: str, log: str) -> InputError:
    return InputError(
        f"{folder}: is {kind} table, whose {log} says which of its files count; the others hold "
        "rows that were removed. Read it by its own tool and write its rows as Parquet, or name it "
        "as table:NAME with --engine spark (engine='spark' in Python)"
    )

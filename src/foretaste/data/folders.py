"""Folders named COLUMN=VALUE, as Spark writes them: columns of the files in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from foretaste._util.formatting import shown
from foretaste.data.csv_files import quoted
from foretaste.data.scans import Column, Scan

_NAMED = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_EMPTY = "__HIVE_DEFAULT_PARTITION__"
_PATTERN = re.compile(r"[*?[]")


def fixed_folder(pattern: Path) -> Path:
    """The part of a pattern that is the same for everything it names."""
    names = pattern.parts
    variable = [place for place, name in enumerate(names) if _PATTERN.search(name)]
    return Path(*names[: min(variable, default=0)])


def with_folder_columns(scan: Scan, path: Path, below: Path) -> Scan:
    """A scan of ``path`` to which the folders between it and ``below`` add the columns that they
    name, as text; a column of the file's own goes before them."""
    own = {name.lower() for name in scan.columns}
    columns, folders, overruled = {}, {}, []
    for folder in path.relative_to(below).parts[:-1]:
        if (found := _NAMED.fullmatch(folder)) is None:
            continue
        name, value = map(unquote, found.groups())
        if name.lower() in own:
            overruled.append(folder)
            continue
        text = "" if value == _EMPTY else value
        columns[name] = Column(sql=quoted(text), storage="text", type_name="text")
        folders[name] = folder
    return replace(
        scan, columns=scan.columns | columns, folders=folders, overruled=tuple(overruled)
    )


def describe_folders(scans: Sequence[Scan], read: Iterable[str]) -> dict[str, str]:
    """What is said of folders that name columns, of which those in ``read`` are read; empty where
    there is nothing to say."""
    said = []
    for name in read:
        folder = next((scan.folders[name] for scan in scans if name in scan.folders), None)
        if folder is not None:
            said.append(f"{shown(name)} is read from the names of folders, such as {shown(folder)}")
    overruled = next((folder for scan in scans for folder in scan.overruled), None)
    if overruled is not None:
        said.append(f"names such as {shown(overruled)} are not read, as the files have that column")
    return {"folders": "; ".join(said)} if said else {}

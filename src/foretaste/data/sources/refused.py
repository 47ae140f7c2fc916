"""Files that are not read: archives, compressions, spreadsheets, pickles and arrays, refused with
the command that makes text of them."""

from __future__ import annotations

import re
from pathlib import Path

from foretaste.errors import InputError

READ_COMPRESSIONS = (".gz", ".zst")
"""Suffixes of compressed text that is read as it is."""

_COMMANDS = {
    ".bz2": "bunzip2 --keep",
    ".xz": "unxz --keep",
    ".lzma": "unlzma --keep",
    ".lz4": "unlz4",
    ".br": "brotli --decompress",
    ".z": "gunzip --keep",
    ".zip": "unzip",
    ".7z": "7z x",
    ".rar": "unrar x",
    ".tar": "tar -xf",
    ".tgz": "tar -xf",
    ".tbz2": "tar -xf",
    ".txz": "tar -xf",
}
# The kind of file, and the advice, by its suffix.
_SPREADSHEET = (
    "is a spreadsheet, which is not read; save it there as CSV (UTF-8), or in Python: "
    "pandas.read_excel({name!r}).to_csv({csv!r}, index=False)"
)
_PICKLE = (
    "is a pickle, which is never opened: it could run any program. Write it as CSV where it was "
    "made: pandas.read_pickle({name!r}).to_csv({csv!r}, index=False)"
)
_ARRAYS = (
    "holds NumPy arrays, which are not read as a file; where it is a matrix of users and items, "
    "give it in Python: foretaste.prepare(scipy.sparse.load_npz({name!r}))"
)
_OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".xlsb", ".ods"), _SPREADSHEET),
    **dict.fromkeys((".pickle", ".pkl"), _PICKLE),
    **dict.fromkeys((".npz", ".npy"), _ARRAYS),
}

# Prepared data that NVIDIA's NCF and VAE-CF wrote.
_REFERENCE = {
    **dict.fromkeys(
        ("train_ratings.pickle", "test_ratings.pickle"),
        ". It looks like data that NVIDIA's NCF prepared: convert both of its files, then "
        "foretaste prepare --train train_ratings.csv --test test_ratings.csv",
    ),
    **dict.fromkeys(
        ("train_data.npz", "vad_data_true.npz", "vad_data_test.npz", "test_data_true.npz",
         "test_data_test.npz"),
        ". It looks like data that NVIDIA's VAE-CF prepared, in five files: the page Coming from "
        "NVIDIA has a script that turns them into CSV with your ids",
    ),
}  # fmt: skip

_STARTS = (
    (rb"\x1f\x8b", ".gz"),
    (rb"\x28\xb5\x2f\xfd", ".zst"),
    (rb"BZh[1-9]1AY&SY", ".bz2"),
    (rb"\xfd7zXZ\x00", ".xz"),
    (rb"PK\x03\x04", ".zip"),
    (rb"7z\xbc\xaf\x27\x1c", ".7z"),
    (rb"Rar!\x1a\x07", ".rar"),
    (rb"PAR1", ".parquet"),
)


def refuse_by_name(path: Path) -> None:
    """Raise InputError for a file whose name says that it is something that is not read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = suffixes[-1] if suffixes else ""
    command = "tar -xf" if ".tar" in suffixes[-2:] else _COMMANDS.get(suffix)
    if command is not None:
        raise InputError(
            f"{path}: is packed as {suffix}, which is not read; unpack it, for example with "
            f"`{command} {path.name}`, and give what was in it"
        )
    if suffix in _OTHERS:
        problem = _OTHERS[suffix].format(name=path.name, csv=f"{path.stem}.csv")
        raise InputError(f"{path}: {problem}{_REFERENCE.get(path.name, '')}")


def refuse_by_content(path: Path) -> None:
    """Raise InputError for a file of text, by its name, that holds something else."""
    if path.suffix.lower() in READ_COMPRESSIONS:
        return
    with path.open("rb") as file:
        start = file.read(16)
    kind = next((suffix for pattern, suffix in _STARTS if re.match(pattern, start)), None)
    if kind is None:
        return
    if kind in _COMMANDS:
        advice = f"unpack it, for example with `{_COMMANDS[kind]}`, and give what was in it"
    else:
        advice = f"rename it to end in {kind}"
    raise InputError(f"{path}: is not text but a {kind} file, whatever its name; {advice}")

"""The kind of a file by its first bytes, checked before its name."""

from __future__ import annotations

import re
from pathlib import Path

from foretaste._util.files import open_regular
from foretaste._util.formatting import short_repr
from foretaste.data.sources.source import PARQUET_SUFFIXES, unreadable
from foretaste.errors import InputError

_NUM_BYTES = 128
_NUM_SHOWN = 60

_UNPACK, _SAVE = "unpack it", "save it as CSV or Parquet"
_AS_PARQUET = "write its rows as Parquet"
_ARRAYS = "load it in Python and give a frame or a sparse matrix"
_ON_PAGE = "docs/coming-from-nvidia.md has the script that converts it"
_ZIP = rb"PK\x03\x04.{26}"
_READ = {"a .gz file": (".gz",), "a .zst file": (".zst",), "a .parquet file": PARQUET_SUFFIXES}
"""The endings of names that a kind of file must have to be read."""

# DuckDB reads 0 rows from bz2, xz and zip, without an error.
_SIGNATURES = (
    (rb"\x1f\x8b", "a .gz file", "rename it to end in .gz"),
    (rb"\x28\xb5\x2f\xfd", "a .zst file", "rename it to end in .zst"),
    (rb"PAR1", "a .parquet file", "rename it to end in .parquet"),
    (rb"BZh[1-9]1AY&SY", "a .bz2 file", _UNPACK),
    (rb"\xfd7zXZ\x00", "a .xz file", _UNPACK),
    (rb"\x04\x22\x4d\x18", "a .lz4 file", _UNPACK),
    (rb"7z\xbc\xaf\x27\x1c", "a .7z file", _UNPACK),
    (rb"Rar!\x1a\x07", "a .rar file", _UNPACK),
    (_ZIP + rb"(?:\[Content_Types\]|_rels/|docProps/|xl/)", "a .xlsx file", _SAVE),
    (_ZIP + rb"mimetypeapplication/vnd\.oasis", "a .ods file", _SAVE),
    (_ZIP + rb"[^\x00-\x1f]*\.npy", "a .npz file", _ARRAYS),
    (rb"PK\x03\x04", "a .zip file", _UNPACK),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a .xls file", _SAVE),
    (rb"SQLite format 3\x00", "a SQLite file", "name it as sqlite:///{path}"),
    (rb"ARROW1|FEA1", "a Feather file", _AS_PARQUET),
    (rb"ORC[^\t -~]", "an ORC file", _AS_PARQUET),
    (rb"Obj\x01", "an Avro file", _AS_PARQUET),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file", _AS_PARQUET),
    (rb"\x93NUMPY", "a .npy file", _ARRAYS),
    (
        rb"\x80[\x02-\x05]", "a pickle, like the prepared data of NCF and VAE-CF",
        f"foretaste loads none, because a pickle can run any program; {_ON_PAGE}",
    ),
)  # fmt: skip
_JSON = "JSON"
_WORDS = (
    (
        r"model_checkpoint_path: ", "TensorFlow's list of checkpoints",
        "foretaste reads none: train the model again, on the same data",
    ),
    (r"version https://git-lfs\.", "a pointer of Git LFS", "get the file with git lfs pull"),
    (
        r"\s*<(?:!doctype html|html|head|body)\b", "a page of HTML",
        "the page may say why there is no file",
    ),
    (r"\s*<\?xml", "XML", _SAVE),
    (r"%PDF-", "a PDF", _SAVE),
    (
        r"\s*(?:\{\s*\"|\[\s*\{)", _JSON,
        "lines of JSON are read from files that end in .jsonl",
    ),
)  # fmt: skip

# Each table is one pattern, because thousands of files may be matched. Groups and rows have the
# same order.
_ANY_SIGNATURE = re.compile(b"|".join(b"(%b)" % row[0] for row in _SIGNATURES), re.DOTALL)
_ANY_WORDS = re.compile("|".join(f"({row[0]})" for row in _WORDS), re.IGNORECASE)


def refuse_by_signature(path: Path, *, is_json: bool = False) -> None:
    """Raise InputError for a kind of file that is not read, or has another kind's name."""
    try:
        with open_regular(path) as file:
            start = file.read(_NUM_BYTES)
    except OSError as error:
        raise unreadable(str(path), error) from None
    suffix = path.suffix.lower()
    if found := _ANY_SIGNATURE.match(start):
        _, kind, advice = _SIGNATURES[(found.lastindex or 0) - 1]
        if suffix in _READ.get(kind, ()):
            return
        raise InputError(f"{path}: is {kind}, despite its name; {advice.format(path=path)}")
    text = start.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    example = text[:_NUM_SHOWN]
    if words := _ANY_WORDS.match(text):
        _, kind, advice = _WORDS[(words.lastindex or 0) - 1]
        if kind != _JSON or not is_json:
            raise InputError(
                f"{path}: is {kind}, despite its name; {advice}: {short_repr(example)}"
            )
    for kind, suffixes in _READ.items():
        if suffix in suffixes and start and not {"\0", "\N{REPLACEMENT CHARACTER}"} & {*example}:
            raise InputError(
                f"{path}: is not {kind} but text, despite its name: {short_repr(example)}"
            )

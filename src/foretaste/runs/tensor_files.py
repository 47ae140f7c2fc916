"""Signed files of tensors: safetensors files with a note, which has the sha256 of tensors and note.

The library that reads and writes safetensors takes tensors that are all in memory, and opens a file
twice. Here a file is written piece by piece, with the same bytes, and read from one opening: the
bytes that are checked are those that the tensors have.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from foretaste._util.files import open_regular
from foretaste._util.memory import free_bytes
from foretaste.errors import RunError
from foretaste.runs.paths import reading

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DIGEST = "sha256"
"""The note's entry with the digest of the tensors and the rest of the note."""

_METADATA_KEY = "foretaste"
"""The note is one JSON under one key: with several keys the file's bytes would vary."""

_DTYPES = {
    "I64": "int64",
    "F64": "float64",
    "F32": "float32",
    "I32": "int32",
    "BF16": "bfloat16",
    "F16": "float16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""PyTorch's names of the types that weights and training states have, by safetensors' names, in the
order in which tensors lie in a file."""

_MAX_HEADER = 100_000_000
"""Bytes, as in safetensors itself."""

_PIECE = 1 << 23
"""Bytes that are read at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """A tensor to write: its type, its whole shape and, piece by piece, its rows."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Iterable[Tensor]

    @classmethod
    def of(cls, tensor: Tensor) -> Written:
        """A tensor that is here as a whole."""
        return cls(dtype=tensor.dtype, shape=tuple(tensor.shape), pieces=[tensor])

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write_tensors(file: IO[bytes], tensors: Mapping[str, Written], note: Mapping[str, Any]) -> str:
    """Fill an empty file; returns the digest. Equal tensors and notes make equal bytes.

    The pieces are taken by the order of the tensors' names, one at a time.
    """
    import torch

    digest = _digest_of_note(note)
    length = len(_header(tensors, note, digest.hexdigest()))
    offsets = _offsets(tensors)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(_signed_heading(name, tensor.dtype, tensor.shape))
        file.seek(length + offsets[name])
        num_left = tensor.num_bytes
        for piece in tensor.pieces:
            content = piece.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            digest.update(content)
            file.write(content)
            num_left -= len(content)
        assert num_left == 0, name
    file.seek(0)
    file.write(_header(tensors, note, digest.hexdigest()))
    return digest.hexdigest()


def read_tensors(
    path: Path, owner: Mapping[str, Any], *, checked: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of ``path`` on the CPU, in memory of their own, and its note.

    Whatever becomes of the file later, they are what was checked. Only where they would not fit
    memory, or are not to be ``checked``, are they parts of the file that are read once used, and
    change with it.

    Raises RunError where the file is torn, was changed, or its note disagrees with ``owner``. Where
    it is not to be ``checked``, no numbers are read yet, and changed ones are not noticed.
    """
    with reading(path), open_regular(path) as file:
        try:
            content = _content(file, mapped=not checked)
            tensors, positions, metadata = _parsed(content)
        except (LookupError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise RunError(f"{path} is torn or not a safetensors file: {error!s:.200}") from error
        note = _checked_note(path, metadata, owner)
        if checked and _digest(file, content, tensors, positions, note) != note[DIGEST]:
            raise RunError(f"{path} is torn or was changed: its content does not match its digest")
    return tensors, note


def _content(file: IO[bytes], *, mapped: bool) -> memoryview | mmap:
    """The bytes of a file, in memory of their own or, where they are too many, ``mapped``."""
    num_bytes = os.fstat(file.fileno()).st_size
    if mapped or num_bytes > free_bytes():
        return mmap(file.fileno(), 0, access=ACCESS_COPY)
    content = np.empty(num_bytes, dtype=np.uint8).data
    if (num_read := file.readinto(content)) != num_bytes:  # type: ignore[attr-defined]
        raise ValueError(f"it had {num_bytes} bytes, and {num_read} were read")
    return content


def _checked_note(
    path: Path, metadata: Mapping[str, str], owner: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        note = json.loads(metadata.get(_METADATA_KEY, ""))
    except (ValueError, TypeError, RecursionError):
        note = None
    if not isinstance(note, dict) or DIGEST not in note:
        raise RunError(f"{path} was not written by foretaste: its metadata say nothing of a run")
    for name, expected in owner.items():
        if note.get(name) != expected:
            raise RunError(
                f"{path} belongs to another run or place: its {name} is {note.get(name)!r}, not "
                f"{expected!r}"
            )
    return note


def _parsed(
    content: memoryview | mmap,
) -> tuple[dict[str, Tensor], dict[str, int], dict[str, str]]:
    """The tensors of a file, which are parts of it, their positions, and its metadata.

    ValueError where the tensors do not lie one after the other, up to the end of the file.
    """
    import torch

    length = int.from_bytes(content[:8], "little")
    if length > min(_MAX_HEADER, len(content) - 8):
        raise ValueError(f"its header would have {length} bytes")
    header = json.loads(bytes(content[8 : 8 + length]))
    metadata = dict(header.pop("__metadata__", {}))
    tensors, positions, start = {}, {}, 8 + length
    position = start
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = getattr(torch, _DTYPES[entry["dtype"]]), entry["shape"]
        count = math.prod(shape)
        end = position + count * dtype.itemsize
        if entry["data_offsets"] != [position - start, end - start] or end > len(content):
            raise ValueError(f"{name!r} is not where it belongs")
        tensor = torch.empty(0, dtype=dtype)
        if count:
            tensor = torch.frombuffer(content, dtype=dtype, count=count, offset=position)
        tensors[name], positions[name], position = tensor.reshape(shape), position, end
    if position != len(content):
        raise ValueError(f"it has {len(content)} bytes where {position} belong")
    return tensors, positions, metadata


def _digest(
    file: IO[bytes],
    content: memoryview | mmap,
    tensors: Mapping[str, Tensor],
    positions: Mapping[str, int],
    note: Mapping[str, Any],
) -> str:
    """sha256 of the note and of every tensor's name, type, shape and bytes.

    Of a mapped file they are read: the pages of a large one would stay in the process's memory.
    """
    digest = _digest_of_note(note)
    for name in sorted(tensors):
        digest.update(_signed_heading(name, tensors[name].dtype, tuple(tensors[name].shape)))
        start, num_bytes = positions[name], tensors[name].nbytes
        if isinstance(content, memoryview):
            digest.update(content[start : start + num_bytes])
            continue
        file.seek(start)
        for piece in _read_pieces(file, num_bytes):
            digest.update(piece)
    return digest.hexdigest()


def _read_pieces(file: IO[bytes], num_bytes: int) -> Iterator[bytes]:
    while num_bytes and (piece := file.read(min(num_bytes, _PIECE))):
        num_bytes -= len(piece)
        yield piece


def _digest_of_note(note: Mapping[str, Any]) -> hashlib._Hash:
    signed = {name: value for name, value in note.items() if name != DIGEST}
    return hashlib.sha256(json.dumps(signed, sort_keys=True).encode())


def _signed_heading(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    return json.dumps([name, str(dtype), list(shape)]).encode()


def _offsets(tensors: Mapping[str, Written]) -> dict[str, int]:
    """Position of each tensor after the header, in the order of a file."""
    types = list(_DTYPES.values())

    def place(name: str) -> tuple[int, str]:
        return types.index(str(tensors[name].dtype).removeprefix("torch.")), name

    offsets, end = {}, 0
    for name in sorted(tensors, key=place):
        offsets[name] = end
        end += tensors[name].num_bytes
    return offsets


def _header(tensors: Mapping[str, Written], note: Mapping[str, Any], digest: str) -> bytes:
    """The first bytes of a file, as safetensors writes them; of one length for every digest."""
    types = {theirs: ours for ours, theirs in _DTYPES.items()}
    signed = json.dumps({**note, DIGEST: digest}, sort_keys=True)
    header: dict[str, Any] = {"__metadata__": {_METADATA_KEY: signed}}
    for name, offset in _offsets(tensors).items():
        tensor = tensors[name]
        header[name] = {
            "dtype": types[str(tensor.dtype).removeprefix("torch.")],
            "shape": tensor.shape,
            "data_offsets": [offset, offset + tensor.num_bytes],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text

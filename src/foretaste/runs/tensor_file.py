"""Tensors in a safetensors file that says whose they are and proves to be whole."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from foretaste._util.atomic import atomic_file
from foretaste._util.regular import open_regular
from foretaste.errors import RunError
from foretaste.runs.files import reading

if TYPE_CHECKING:
    from torch import Tensor

_METADATA_KEY = "foretaste"
"""The note is one JSON under one key: with several keys the file's bytes would vary."""

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""As safetensors names those that weights and training states have."""

_MAX_HEADER = 100_000_000
"""Bytes, as in safetensors itself."""

DIGEST = "sha256"
"""The note's entry with the digest of the tensors and the rest of the note."""


class SignedTensors:
    """Tensors and a note, on the CPU, and the digest of both."""

    def __init__(self, tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
        self._tensors = {
            name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()
        }
        self._note = note
        self.digest = _digest(self._tensors, note)

    def write(self, path: Path) -> None:
        """Replace ``path`` atomically by them; equal ones make equal bytes.

        Raises RunError where they cannot be written, such as on a full disk.
        """
        note = json.dumps({**self._note, DIGEST: self.digest}, sort_keys=True)
        try:
            with atomic_file(path) as temporary:
                save_file(self._tensors, temporary, metadata={_METADATA_KEY: note})
        except (SafetensorError, OSError) as error:
            reason = str(error).removeprefix("Error while serializing: I/O error: ")
            raise RunError(f"{path} cannot be written: {reason}") from error


def read_tensors(path: Path, owner: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of ``path`` on the CPU, and its note.

    Raises RunError where the file is torn, was changed, or its note disagrees with ``owner``.
    """
    # Not by `safe_open`, which opens the file by its name twice: replaced in between, the header
    # would be of one file and the numbers of another.
    with reading(path), open_regular(path) as file:
        try:
            content = mmap(file.fileno(), 0, access=ACCESS_COPY)
            header, begin = _header(content)
            metadata = dict(header.pop("__metadata__", {}))
            tensors = _tensors(content, begin, header)
        except (LookupError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise RunError(f"{path} is torn or not a safetensors file: {error!s:.200}") from error
    note = _read_note(path, metadata)
    _check_owner(path, note, owner)
    if _digest(tensors, note) != note[DIGEST]:
        raise RunError(f"{path} is torn or was changed: its content does not match its digest")
    return tensors, note


def _header(content: mmap) -> tuple[dict[str, Any], int]:
    """What a file says of its tensors, and where their numbers begin."""
    length = int.from_bytes(content[:8], "little")
    if length > min(_MAX_HEADER, len(content) - 8):
        raise ValueError(f"its header would have {length} bytes")
    return json.loads(content[8 : 8 + length]), 8 + length


def _tensors(content: mmap, begin: int, header: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file, which are parts of it: one after the other, up to its end."""
    tensors, place = {}, begin
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        count = math.prod(shape)
        end = place + count * dtype.itemsize
        if entry["data_offsets"] != [place - begin, end - begin] or end > len(content):
            raise ValueError(f"{name!r} is not where it belongs")
        tensor = torch.empty(0, dtype=dtype)
        if count:
            tensor = torch.frombuffer(content, dtype=dtype, count=count, offset=place)
        tensors[name], place = tensor.reshape(shape), end
    if place != len(content):
        raise ValueError(f"it has {len(content)} bytes where {place} belong")
    return tensors


def _digest(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> str:
    """sha256 of the note and of every tensor's name, type, shape and bytes."""
    signed = {name: value for name, value in note.items() if name != DIGEST}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read_note(path: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        note = json.loads(metadata.get(_METADATA_KEY, ""))
    except (ValueError, TypeError, RecursionError):
        note = None
    if not isinstance(note, dict) or DIGEST not in note:
        raise RunError(f"{path} was not written by foretaste: its metadata say nothing of a run")
    return note


def _check_owner(path: Path, note: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    for name, expected in owner.items():
        if note.get(name) != expected:
            raise RunError(
                f"{path} belongs to another run: {name} is {note.get(name)!r}, "
                f"config.json says {expected!r}"
            )

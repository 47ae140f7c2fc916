"""Tensors in a safetensors file that says whose they are and proves to be whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from foretaste._util.atomic import atomic_file
from foretaste.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor

_METADATA_KEY = "foretaste"
"""The note is one JSON under one key: with several keys the file's bytes would vary."""

DIGEST = "sha256"
"""The note's entry with the digest of the tensors and the rest of the note."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
    """Replace ``path`` atomically by these tensors and a note; equal ones make equal bytes.

    Raises RunError where they cannot be written, such as on a full disk.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    signed = {**note, DIGEST: _digest(on_cpu, note)}
    metadata = {_METADATA_KEY: json.dumps(signed, sort_keys=True)}
    try:
        with atomic_file(path) as temporary:
            save_file(on_cpu, temporary, metadata=metadata)
    except (SafetensorError, OSError) as error:
        reason = str(error).removeprefix("Error while serializing: I/O error: ")
        raise RunError(f"{path} cannot be written: {reason}") from error


def read_tensors(path: Path, owner: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of ``path`` on the CPU, and its note.

    Raises RunError where the file is torn, was changed, or its note disagrees with ``owner``.
    """
    try:
        with safe_open(path, framework="pt") as file:
            note = _read_note(path, file.metadata() or {})
            _check_owner(path, note, owner)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is torn or not a safetensors file: {error}") from error
    if _digest(tensors, note) != note[DIGEST]:
        raise RunError(f"{path} is torn or was changed: its content does not match its digest")
    return tensors, note


def _digest(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> str:
    """sha256 of the note and of every tensor's name, type, shape and bytes."""
    signed = {name: value for name, value in note.items() if name != DIGEST}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read_note(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        note = json.loads(metadata.get(_METADATA_KEY, ""))
    except ValueError:
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

"""The files of a run: their names, and the format of those with tensors.

``best.safetensors`` has the weights of the best epoch, and ``resume.safetensors`` the state of the
training. Each is a safetensors file with a note: its content, the digest of the run's config, and
the sha256 of tensors and note. Equal runs have equal files.

PyTorch is imported by the functions that need it, so a run opens without it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.files import atomic_file, open_regular
from foretaste._util.system import free_bytes
from foretaste.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
METRICS = "metrics.jsonl"
USERS = "users.parquet"
ITEMS = "items.parquet"
HISTORIES = "histories.parquet"
FEATURES = "features.parquet"
SEEN = "seen.parquet"
WEIGHTS = "best.safetensors"
STATE = "resume.safetensors"

DIGEST = "sha256"
"""The note's entry with the digest of the tensors and the rest of the note."""

# The note is one JSON under one key. With two keys or more, safetensors writes them in an order
# that varies, and equal runs would have unequal files.
_METADATA_KEY = "foretaste"


RowsOf = Callable[[str], range | None]
"""Function from the name of a tensor to the rows to read; None for all rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedTensors:
    """The checked content of a file of tensors."""

    tensors: dict[str, Tensor]
    """The rows that were asked for, on the CPU, by the tensor's name."""
    note: dict[str, Any]

    @property
    def digest(self) -> str:
        """The digest of all whole tensors and of the rest of the note."""
        return str(self.note[DIGEST])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise RunError if ``path`` is missing, is no regular file or cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: the run is not whole") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise RunError if ``path`` cannot be written, such as on a full disk."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def read_tensors(
    path: Path, owner: Mapping[str, Any], rows_of: RowsOf | None = None
) -> SavedTensors:
    """Return the tensors of ``path``, copied into memory.

    Later changes of the file do not reach the copies. Tensors that do not fit into memory stay
    mapped from the file. With ``rows_of``, only some rows of each. Raises RunError if the file is
    missing, torn or changed, or if its note differs from ``owner``.
    """
    while True:
        with reading(path), open_regular(path) as file:
            try:
                return _open_checked(path, owner, rows_of)
            except RunError:
                # safetensors opens the path twice, for the header and for the data. If a training
                # replaced the file in between, they do not fit, and the new file is read.
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    raise


def _open_checked(path: Path, owner: Mapping[str, Any], rows_of: RowsOf | None) -> SavedTensors:
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, Tensor] = {}
    is_held = path.stat().st_size <= free_bytes()
    try:
        with safe_open(path, framework="pt") as file:
            note = _note_of(path, file.metadata() or {}, owner)
            digest = _digest_of_note(note)
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                # A mapped file that is written in place changes under its reader, and one that is
                # cut ends the reader by SIGBUS.
                tensor = tensor.clone() if is_held else tensor
                # Hash whole tensors even if only some rows are read: the digest covers all rows.
                _add(digest, name, tensor)
                # A single number, such as a count of updates, has no rows.
                rows = rows_of(name) if rows_of is not None and tensor.dim() else None
                tensors[name] = tensor if rows is None else tensor[rows.start : rows.stop].clone()
    except (SafetensorError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(f"{path} is torn or not a safetensors file: {error!s:.200}") from error
    if digest.hexdigest() != note[DIGEST]:
        raise RunError(f"{path} is torn or was changed: its content does not match its digest")
    return SavedTensors(tensors=tensors, note=note)


def _note_of(path: Path, metadata: Mapping[str, str], owner: Mapping[str, Any]) -> dict[str, Any]:
    try:
        note = json.loads(metadata.get(_METADATA_KEY, ""))
    except (ValueError, RecursionError):
        note = None
    if not isinstance(note, dict) or DIGEST not in note:
        raise RunError(f"{path} was not written by foretaste: its metadata name no run")
    for name, expected in owner.items():
        if note.get(name) != expected:
            raise RunError(
                f"{path} belongs to another run or place: its {name} is {note.get(name)!r}, not "
                f"{expected!r}"
            )
    return note


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], owner: Mapping[str, Any], note: Mapping[str, Any]
) -> None:
    """Replace the file at ``path`` by these tensors, atomically.

    Args:
        owner: the entries of the note that a reader expects.
        note: further entries.

    Raises RunError if they cannot be written, such as on a full disk.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Sort tensors by name, in the order of reading: the digest covers them in this order.
    here = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    whole_note = {**owner, **note}
    digest = _digest_of_note(whole_note)
    for name, tensor in here.items():
        _add(digest, name, tensor)
    text = json.dumps({**whole_note, DIGEST: digest.hexdigest()}, sort_keys=True)
    with writing(path), atomic_file(path) as temporary:
        try:
            save_file(here, temporary, metadata={_METADATA_KEY: text})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def _digest_of_note(note: Mapping[str, Any]) -> hashlib._Hash:
    rest = {name: value for name, value in note.items() if name != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode())


def _add(digest: hashlib._Hash, name: str, tensor: Tensor) -> None:
    """Add a tensor's name, type, shape and bytes to a digest."""
    import torch

    digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)

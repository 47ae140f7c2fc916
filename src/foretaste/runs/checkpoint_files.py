"""Checkpoint files of a run: ``best.safetensors``, the weights of its best epoch, and
``resume.safetensors``, the state of its training.

Each is a safetensors file with a note: its owner, and the sha256 of tensors and note. The weights
name nothing of one run, so equal runs have equal files. The log of a run distinguishes the weights
of one training from those of another: it has their digest before they take their place.

PyTorch is imported where tensors are read or written, so a run opens without it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.atomic import atomic_file
from foretaste._util.files import open_regular
from foretaste.errors import RunError
from foretaste.runs.lock import lock_holder
from foretaste.runs.metrics_log import MetricsLog
from foretaste.runs.paths import reading, resume_command

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "best.safetensors"
STATE = "resume.safetensors"

KEPT = "best_weights"
"""The entry of an event: ``{"epoch": ..., "sha256": ...}``, or null where there are none."""

DIGEST = "sha256"
"""The note's entry with the digest of the tensors and the rest of the note."""

_METADATA_KEY = "foretaste"
"""The note is one JSON under one key: with several keys the file's bytes would vary."""

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "U8": "uint8",
    "BOOL": "bool",
}
"""PyTorch's names of the types that weights and training states have, by safetensors' names."""

_MAX_HEADER = 100_000_000
"""Bytes, as in safetensors itself."""


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
        from safetensors import SafetensorError
        from safetensors.torch import save_file

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
            tensors, metadata = _parsed(content)
        except (LookupError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise RunError(f"{path} is torn or not a safetensors file: {error!s:.200}") from error
    try:
        note = json.loads(metadata.get(_METADATA_KEY, ""))
    except (ValueError, TypeError, RecursionError):
        note = None
    if not isinstance(note, dict) or DIGEST not in note:
        raise RunError(f"{path} was not written by foretaste: its metadata say nothing of a run")
    for name, expected in owner.items():
        if note.get(name) != expected:
            raise RunError(
                f"{path} belongs to another run: {name} is {note.get(name)!r}, "
                f"config.json says {expected!r}"
            )
    if _digest(tensors, note) != note[DIGEST]:
        raise RunError(f"{path} is torn or was changed: its content does not match its digest")
    return tensors, note


def _parsed(content: mmap) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, which are parts of it, and its metadata.

    ValueError where the tensors do not lie one after the other, up to the end of the file.
    """
    import torch

    length = int.from_bytes(content[:8], "little")
    if length > min(_MAX_HEADER, len(content) - 8):
        raise ValueError(f"its header would have {length} bytes")
    header = json.loads(content[8 : 8 + length])
    metadata = dict(header.pop("__metadata__", {}))
    tensors, start = {}, 8 + length
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
        tensors[name], position = tensor.reshape(shape), end
    if position != len(content):
        raise ValueError(f"it has {len(content)} bytes where {position} belong")
    return tensors, metadata


def _digest(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> str:
    """sha256 of the note and of every tensor's name, type, shape and bytes."""
    import torch

    signed = {name: value for name, value in note.items() if name != DIGEST}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class WeightsRecord:
    """Weights by their digests, None for no weights, as a log has them so far.

    Their digest is in the log before they take their place, so those before them may still be there
    when a writer was killed in between.
    """

    logged: tuple[tuple[str, str | None], ...]
    """Time and digest of each, in order."""

    expected: tuple[str | None, ...]
    """Digests of those that may be in place: of the last, and of the one before."""

    epochs: Mapping[str | None, int | None]
    """The epoch of each digest; None where the model is fitted in one pass."""

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> WeightsRecord:
        """The record that these events make."""
        logged: list[tuple[str, str | None]] = []
        expected: tuple[str | None, ...] = (None,)
        epochs: dict[str | None, int | None] = {}
        for event in events:
            if event["event"] == "summary":
                expected = expected[-1:]
            if KEPT not in event:
                continue
            kept = event[KEPT] or {"epoch": None, "sha256": None}
            digest = kept["sha256"]
            logged.append((event["time"], digest))
            epochs[digest] = kept["epoch"]
            # Going on, a training names what is in place, and nothing else is from there on.
            expected = (digest,) if event["event"] == "resume" else (expected[-1], digest)
        return cls(logged=tuple(logged), expected=expected, epochs=epochs)

    def later_than(self, earlier: WeightsRecord) -> set[str | None]:
        """Digests that the log did not have yet when it had the ``earlier`` record."""
        return {digest for _, digest in set(self.logged) - set(earlier.logged)}


class BestWeights:
    """The weights of a run, saved and loaded together with the events of its log."""

    def __init__(self, run_path: Path, log: MetricsLog, owner: Mapping[str, Any]) -> None:
        self.path = run_path / WEIGHTS
        self.loaded_epoch: int | None = None
        self._log = log
        self._owner = owner

    @property
    def are_there(self) -> bool:
        return os.path.lexists(self.path)

    def save(self, state_dict: Mapping[str, Tensor], epoch: int | None) -> None:
        """Log the digest of these weights, then have them replace those before."""
        weights = SignedTensors(state_dict, self._owner)
        self._log.append("weights", **{KEPT: {"epoch": epoch, "sha256": weights.digest}})
        self._log.flush()
        weights.write(self.path)

    def restore(self, state_dict: Mapping[str, Tensor]) -> None:
        """Write the weights that the log has as the last; RunError where these are others."""
        weights = SignedTensors(state_dict, self._owner)
        if weights.digest != WeightsRecord.of(self._log.read()).expected[-1]:
            raise RunError("the weights were changed since they were trained; train them anew")
        weights.write(self.path)

    def load(self) -> tuple[dict[str, Tensor], str]:
        """The weights, on the CPU, and their digest; RunError where they are not the log's."""
        record = WeightsRecord.of(self._log.read_sound())
        run_path = self.path.parent
        if not self.are_there:
            if None not in record.expected:
                raise RunError(f"{self.path} is missing: the run is not whole")
            if process := lock_holder(run_path):
                raise RunError(
                    f"{run_path} has no {WEIGHTS} yet: it is being trained by {process}; wait for "
                    "its first evaluation"
                )
            raise RunError(
                f"{run_path} has no {WEIGHTS}: its training ended before the first evaluation; "
                f"go on with it: {resume_command(run_path)}"
            )
        tensors, note = read_tensors(self.path, self._owner)
        digest = note[DIGEST]
        if digest not in record.expected:
            # A training that goes on may have logged and written other weights meanwhile.
            earlier, record = record, WeightsRecord.of(self._log.read())
            if digest not in record.later_than(earlier):
                expected = " or ".join(known[:12] for known in record.expected if known)
                raise RunError(
                    f"{self.path} belongs to another run: its digest is {digest[:12]}, "
                    f"{self._log.path} says {expected or 'that there are no weights yet'}"
                )
        self.loaded_epoch = record.epochs[digest]
        return tensors, digest

    def kept(self) -> dict[str, Any] | None:
        """The entry `KEPT` for the weights in place, None for none; RunError where they are not
        those of the log."""
        record = WeightsRecord.of(self._log.read_sound())
        if not self.are_there and None in record.expected:
            return None
        _, digest = self.load()
        return {"epoch": self.loaded_epoch, "sha256": digest}

"""``best.safetensors``: the weights of a run, with a note of what they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from foretaste.errors import RunError
from foretaste.runs.atomic import atomic_file

if TYPE_CHECKING:
    from torch import Tensor

_METADATA_KEY = "foretaste"
"""The note is one JSON under one key: with several keys the file's bytes would vary."""


def write_weights(path: Path, tensors: Mapping[str, Tensor], owner: Mapping[str, Any]) -> None:
    """Replace ``path`` atomically by these tensors and a note of whose they are.

    Raises RunError where they cannot be written, such as on a full disk.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {_METADATA_KEY: json.dumps(owner, sort_keys=True)}
    try:
        with atomic_file(path) as temporary:
            save_file(on_cpu, temporary, metadata=metadata)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def read_weights(path: Path, owner: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of ``path`` on the CPU; RunError when it is torn or belongs to another run."""
    try:
        with safe_open(path, framework="pt") as file:
            _check_owner(path, file.metadata() or {}, owner)
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is torn or not a safetensors file: {error}") from error


def _check_owner(path: Path, metadata: Mapping[str, str], owner: Mapping[str, Any]) -> None:
    try:
        found = json.loads(metadata.get(_METADATA_KEY, ""))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path} was not written by foretaste: its metadata say nothing of a run")
    for name, expected in owner.items():
        if found.get(name) != expected:
            raise RunError(
                f"{path} belongs to another run: {name} is {found.get(name)!r}, "
                f"config.json says {expected!r}"
            )

"""The form of a training's operations: the chunked one, or Triton's kernels where a GPU's own
measurement found them faster.

``foretaste bench kernels`` measures and keeps its verdicts in one small file, by GPU, versions and
settings; nothing else writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch

from foretaste._util.atomic import atomic_file
from foretaste._util.files import cache_directory, why_not_written
from foretaste.errors import SettingError
from foretaste.models.base import Implementation
from foretaste.models.config import ModelConfig
from foretaste.ops.triton import support as triton_support
from foretaste.training.config import Kernels

FORMS: tuple[Implementation, ...] = get_args(Implementation)
"""Forms of the operations that may be measured."""


def chosen(
    kernels: Kernels, device: str, model: ModelConfig, batch_size: int, precision: str
) -> Implementation:
    """The form that ``kernels`` is; SettingError for Triton's on a CPU.

    ``auto`` is the form that was measured to be the fastest in this very case, and the chunked one
    where nothing was measured.
    """
    if kernels == "triton" and device == "cpu":
        raise SettingError(
            "kernels is triton, whose kernels are for NVIDIA GPUs, and the device is the CPU; "
            "leave it out"
        )
    if kernels != "auto":
        return kernels
    verdicts = [] if device == "cpu" else _verdicts()
    if verdicts and triton_support.is_installed():
        case = case_of(torch.device(device), model, batch_size, precision)
        for verdict in verdicts:
            if verdict["case"] == case:
                return verdict["fastest"]  # type: ignore[no-any-return]
    return "chunked"


def case_of(
    device: torch.device, model: ModelConfig, batch_size: int, precision: str
) -> dict[str, Any]:
    """The case that a verdict is for, as JSON values; ``model`` has its sizes resolved."""
    return {
        # A kernel's time depends on the GPU and on what compiled it: another version is another
        # case, which is measured anew.
        "gpu": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "triton": triton_support.version(),
        "model": type(model).__name__.removesuffix("Config"),
        # Any of them may decide a time, or whether there is a kernel.
        "settings": json.loads(json.dumps(asdict(model))),
        "batch_size": batch_size,
        "precision": precision,
    }


def keep_verdict(case: Mapping[str, Any], epoch_s: Mapping[Implementation, float]) -> Path:
    """Keep which form took the fewest seconds, in place of an earlier verdict; returns the file."""
    others = [verdict for verdict in _verdicts() if verdict["case"] != case]
    fastest = min(epoch_s, key=lambda form: epoch_s[form])
    verdicts = [*others, {"case": case, "epoch_s": epoch_s, "fastest": fastest}]
    path = verdicts_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as unfinished:
            unfinished.write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        why = why_not_written(error, "name another folder in XDG_CACHE_HOME")
        raise SettingError(f"{path} {why}") from error
    return path


def verdicts_path() -> Path:
    """``foretaste/kernels.json`` in the user's cache; SettingError where there is no such place."""
    return cache_directory() / "kernels.json"


def _verdicts() -> list[dict[str, Any]]:
    try:
        text = verdicts_path().read_text(encoding="utf-8")
    except (SettingError, OSError):  # nobody measured
        return []
    verdicts: list[dict[str, Any]] = json.loads(text)
    return verdicts

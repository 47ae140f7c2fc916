"""What is said of an old command line, so that nothing of it changes its meaning in silence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from foretaste.cli.legacy_line import Line
from foretaste.cli.legacy_tokens import NCF_MODELS

_WHY_LEFT_ASIDE = {
    "evaluate": "said of training, which is over; ranking is always computed in fp32",
    "bench train": "changes nothing about what is measured",
    "bench inference": "changes nothing about what is measured; answers are computed in fp32",
    "bench recommend": "changes nothing about what is measured; answers are computed in fp32",
}

_ACTS_HERE = {
    "--l2": "acts here, as --l2: theirs was never applied, so 0 is what it amounted to",
    "--dropout": "acts here: theirs was switched off even in training, so 0 is what it amounted to",
    "--loss-scale": "acts here, in fp16: theirs was ignored",
    "--target": "ends the training here once it is reached: theirs went on to the last epoch",
}
"""By our name: what theirs, of the same name or meaning, did not do."""

_MIXED_PRECISION = "TF_ENABLE_AUTO_MIXED_PRECISION"
_TF32 = "NVIDIA_TF32_OVERRIDE"


def notes_of(line: Line) -> list[str]:
    """Notes to print once, in the order of what they are about."""
    return [*line.notes, *_on_what_acts(line), *_on_the_environment(line), *_on_what_is_idle(line)]


def forbids_tf32() -> bool:
    """Whether the environment turns tf32 off, as it did for the scripts."""
    return os.environ.get(_TF32) == "0"


def _on_what_acts(line: Line) -> Iterator[str]:
    if line.command.verb != "train":
        return
    for option, what in _ACTS_HERE.items():
        written, value = line.said_by(option), line.value_of(option)
        is_theirs = written == "--lam" if option == "--l2" else line.script_model in NCF_MODELS
        if written is not None and value is not None and is_theirs and not _is_zero(value):
            yield f"{written} {value}: {what}"


def _is_zero(value: str) -> bool:
    with suppress(ValueError):
        return float(value) == 0
    return False


def _on_the_environment(line: Line) -> Iterator[str]:
    if line.command.verb == "prepare":
        return
    for name, value in sorted(os.environ.items()):
        if name.startswith(_MIXED_PRECISION) and value != "0":
            yield f"{name}={value} is TensorFlow's: here it is --amp (--precision bf16 or fp16)"
    if _TF32 in os.environ:
        yield (
            f"{_TF32}={os.environ[_TF32]} is for CUDA's own libraries: what a training computes in "
            "is --precision fp32 or tf32 here"
        )


def _on_what_is_idle(line: Line) -> Iterator[str]:
    if line.left_aside:
        why = _WHY_LEFT_ASIDE[line.command.verb]
        yield f"{', '.join(dict.fromkeys(line.left_aside))}: {why}"

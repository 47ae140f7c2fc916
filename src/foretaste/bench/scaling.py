"""``bench scaling``: what training costs as the data grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from foretaste._util.formatting import memory
from foretaste.bench.config import BenchConfig, NeuMFScalingBench, TrainBench, VAEScalingBench
from foretaste.bench.generated import load_histories
from foretaste.bench.rows import OURS, Recorder, Row
from foretaste.bench.shapes import parse_shape, shape_of
from foretaste.bench.subject import Subject
from foretaste.bench.train import OUR_CLOCK, TrainingCase, default_batch_size, needed_part
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.models.memory import free_on
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from foretaste.ops.device import resolve_device

_VAE_GPU_USERS = 4096
_BYTES_PER_PARAMETER = 20
"""Weight, gradient and Adam's two moments in float32, and a quarter for all else, as measured."""

_GROWTHS = {
    "users": (True, False, True),
    "items": (False, True, False),
    "interactions": (False, False, True),
    "all": (True, True, True),
}
"""Which of users, items and interactions grow. Users bring their interactions with them."""


def bench_scaling(
    subject: Subject,
    options: NeuMFScalingBench | VAEScalingBench,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """A row per size: time per sample and peak memory of a short training."""
    device = resolve_device(options.device)
    recorder = Recorder("scaling", subject.name, options, device, subject.settings(), tell)
    cases = list(_cases(subject, options))
    for case, grown, shape in cases:
        tell(f"planned: {_words(case)}, about {memory(_needed_bytes(grown, shape))}")
    for case, grown, shape in cases:
        for precision in options.precision:
            if refused := _too_large(grown, shape, device):
                tell(f"left out {_words(case)}: {refused}")
                numbers: dict[str, Any] = {"left_out": refused}
                recorder.add(OURS, case | {"precision": precision}, "nothing", numbers, shape=shape)
            else:
                tell(f"training in {precision}, {_words(case)}")
                _measure(grown, options, precision, case, shape, recorder, device)
    return recorder.rows


def _cases(
    subject: Subject, options: NeuMFScalingBench | VAEScalingBench
) -> Iterator[tuple[dict[str, Any], Subject, GenerateConfig]]:
    base = parse_shape(options.shape, subject.name)
    if isinstance(options, NeuMFScalingBench):
        for growth, grown, factor in _growths(options):
            users, items, interactions = (factor if grows else 1 for grows in grown)
            counts = (base.num_users * users, base.num_items * items)
            shape = shape_of(*counts, base.num_interactions * interactions)
            yield {"grown": growth, "factor": factor}, subject, shape
        return
    assert isinstance(subject.model, VAEConfig)
    widths = options.widths * (len(options.items) if len(options.widths) == 1 else 1)
    for num_items, width in zip(options.items, widths, strict=True):
        model = replace(subject.model, hidden=tuple(width for _ in subject.model.hidden))
        shape = shape_of(base.num_users, num_items, base.num_interactions)
        yield {"items": num_items, "width": width}, replace(subject, model=model), shape


def _words(case: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in case.items()
    )


def _growths(options: NeuMFScalingBench) -> Iterator[tuple[str, tuple[bool, bool, bool], int]]:
    if 1 in options.factor:
        yield "nothing", (False, False, False), 1
    for growth, grown in _GROWTHS.items():
        for factor in options.factor:
            if factor > 1:
                yield growth, grown, factor


def _measure(
    subject: Subject,
    options: NeuMFScalingBench | VAEScalingBench,
    precision: str,
    case: dict[str, Any],
    shape: GenerateConfig,
    recorder: Recorder,
    device: torch.device,
) -> None:
    histories = load_histories(shape, options.data_cache)
    batch_size = options.batch_size or _batch_size(subject, device)
    part = needed_part(subject, histories, batch_size, options.steps, options.seed)
    training = TrainingCase(subject, _as_training(options), part, precision, batch_size, device)
    training.measure()
    measured = training.sides[OURS].as_numbers(training.num_samples, subject.unit)
    per_s = measured[f"{subject.unit}_per_s"]["median"]
    measured[f"us_per_{subject.unit.removesuffix('s')}"] = 1e6 / per_s
    measured["num_parameters"] = _num_parameters(subject, shape)
    described = case | {
        "precision": precision,
        "batch_size": batch_size,
        "updates": training.num_batches,
    }
    recorder.add(OURS, described, OUR_CLOCK[subject.name], measured, shape=shape)


def _as_training(options: BenchConfig) -> TrainBench:
    return TrainBench(warmup=options.warmup, repeats=options.repeats, seed=options.seed)


def _batch_size(subject: Subject, device: torch.device) -> int:
    if subject.name == "vae" and device.type == "cuda":
        return _VAE_GPU_USERS
    return default_batch_size(subject, device)


def _too_large(subject: Subject, shape: GenerateConfig, device: torch.device) -> str | None:
    """Why the case cannot be run here, or None."""
    needed = _needed_bytes(subject, shape)
    free = free_on(device)
    if needed < free:
        return None
    return f"training takes about {memory(needed)}, and {memory(free)} are free"


def _needed_bytes(subject: Subject, shape: GenerateConfig) -> int:
    return _num_parameters(subject, shape) * _BYTES_PER_PARAMETER


def _num_parameters(subject: Subject, shape: GenerateConfig) -> int:
    """Of the tables and layers that grow with the data; the rest is small beside them."""
    model = subject.model
    if isinstance(model, NeuMFConfig):
        width = model.factors + model.layers[0] // 2
        return (shape.num_users + shape.num_items) * width
    return shape.num_items * (2 * model.hidden[0] + 1)

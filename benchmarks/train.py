"""Training beside the plain loop, measured alternately: throughput by precision and batch size."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import torch

from benchmarks.command import PLAIN, add_ratio, run
from benchmarks.plain_process import PlainCase, PlainProcess
from benchmarks.session import TrainSteps, training_cases
from foretaste._util.settings import Count
from foretaste.bench.measure import time_call
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.bench.train import CLOCKS, measure_training
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import to_device
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from foretaste.ops.negatives import Complement, sample_negatives
from foretaste.ops.random import Purpose, stream_key
from foretaste.training.auto import TrainingPlan

_PLAIN_CLOCKS = {
    "neumf": "an epoch over samples drawn and shuffled beforehand: forward, backward, Adam",
    "vae": "an epoch: order, dense rows made on the device, forward, backward, Adam",
}


@dataclass(frozen=True, kw_only=True)
class TrainComparison(TrainSteps):
    """Options of `foretaste bench train`, and of the plain loop."""

    plain_precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the plain loop: fp32, or bf16 by autocast."""

    plain_chunk: Count | None = None
    """Samples or users of the plain loop at once when it accumulates a batch; None tries several
    for neumf and takes the best."""


NAME = "train"
OPTIONS = dict.fromkeys(("neumf", "vae"), TrainComparison)


def measure(session: Session, options: TrainComparison) -> None:
    """Measure two rows, plain and ours, per precision and batch size."""
    for part, plan in training_cases(session, options):
        _measure_case(session, options, part, plan)


def _measure_case(
    session: Session, options: TrainComparison, part: Histories, plan: TrainingPlan
) -> None:
    assert isinstance(session.model, NeuMFConfig | VAEConfig)
    plain_case = PlainCase(
        session.model,
        part,
        plan,
        options.plain_precision,
        options.plain_chunk,
        torch.get_num_threads(),
    )
    with ExitStack() as stack:

        @cache  # started after our first epoch, so that it holds no memory while ours is built
        def process() -> PlainProcess:
            return stack.enter_context(closing(PlainProcess(plain_case)))

        def after_epoch(is_warmup: bool) -> None:
            process().train_epoch(is_warmup)

        case, ours = measure_training(session, part, plan, options.warmup, after_epoch)
        plain = process()
    plain_numbers, numbers = (side.as_numbers(session.unit) for side in (plain.epochs, ours))
    add_ratio(numbers, plain_numbers, f"{session.unit}_per_s")
    if isinstance(session.model, NeuMFConfig) and session.model.verified_negatives:
        seconds = _negatives_s(session, part, session.model.num_negatives)
        numbers["negatives_s"] = seconds
        numbers["negatives_share"] = seconds / numbers["epoch_s"]["median"]
    differs = {"precision": options.plain_precision, "kernels": "plain", "chunk": plain.chunk}
    clock = _PLAIN_CLOCKS[session.name]
    session.add(PLAIN, {**case, **differs}, clock, plain_numbers)
    session.add(OURS, case, CLOCKS[session.name], numbers)


def _negatives_s(session: Session, part: Histories, number: int) -> float:
    """Seconds to draw an epoch's negatives, the best of three; part of our epochs' time."""
    histories = to_device(part, session.device)
    complement, user_index_N = Complement.of(histories), histories.row_index().int()
    key = stream_key(session.options.seed, Purpose.NEGATIVES, 0)
    draw = partial(sample_negatives, complement, user_index_N, number, key)
    return min(time_call(draw, session.device) for _ in range(3))


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)

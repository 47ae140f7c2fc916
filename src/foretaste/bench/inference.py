"""``bench inference``: throughput and latency of scores on the device, by batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretaste._util.documents import Document
from foretaste.bench.config import InferenceBench
from foretaste.bench.measure import PeakMemory, latencies, timed
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import scoring, to_device
from foretaste.models.base import NeuralModel
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.precision_flags import float32_products

_BATCH_SIZES = {"cpu": (1, 16, 128, 1024), "cuda": (1, 16, 128, 1024, 8192)}
_NUM_INPUTS = 8
"""Number of different inputs that calls take in turn, so that no cache has the next one."""

CLOCK = "indexes and histories of users on the device to scores of the catalogue on the device"


@dataclass(frozen=True, eq=False)
class Call:
    """The function by which one side answers the inputs of a case."""

    side: str
    function: Callable[..., object]
    clock: str


@dataclass(frozen=True)
class Case:
    """Inputs of one size, and the calls that answer them."""

    case: Document
    inputs: Sequence[tuple[Any, ...]]
    calls: list[Call]

    def answer(self, call: Call, number: int) -> object:
        """Make call ``number``; calls take the inputs in turn."""
        return call.function(*self.inputs[number % len(self.inputs)])


def bench_inference(session: Session, options: InferenceBench) -> None:
    """Measure scoring with untrained weights, which do not affect speed."""
    histories = session.histories()
    for case in inference_cases(session, session.build(histories), histories, options):
        record_calls(session, options, case)


def inference_cases(
    session: Session, model: NeuralModel, histories: Histories, options: InferenceBench
) -> Iterator[Case]:
    """One case per batch size; each is measured before the next is made."""

    def scores(user_index_B: Tensor, rows: HistoryTensors) -> Tensor:
        return model.score_catalogue(model.user_state(user_index_B, rows))

    with scoring(model), float32_products(model.device):
        for size in options.batch_sizes or _BATCH_SIZES[session.device.type]:
            rng = np.random.default_rng(options.seed)
            drawn = [rng.integers(histories.num_users, size=size) for _ in range(_NUM_INPUTS)]
            inputs = [
                (
                    torch.from_numpy(users).to(model.device),
                    to_device(histories.rows(users), model.device),
                )
                for users in drawn
            ]
            case = {"precision": "fp32", "batch_size": size}
            yield Case(case, inputs, [Call(OURS, scores, CLOCK)])


def record_calls(session: Session, options: InferenceBench, case: Case) -> None:
    """Measure the calls of a case, with one row per call."""
    for call, numbers in measure_calls(session, options, case).items():
        session.add(call.side, case.case, call.clock, numbers)


def measure_calls(session: Session, options: InferenceBench, case: Case) -> dict[Call, Document]:
    """Warm up the calls of a case, then time them in turns; returns a row's numbers by call."""
    num_users = case.case["batch_size"]
    session.log(f"timing calls of {num_users:,} users")
    calls = {call: partial(case.answer, call) for call in case.calls}
    first: dict[Call, Document] = {}
    for call, function in calls.items():
        memory = PeakMemory(session.device)
        first_s = timed(partial(function, 0), session.device)
        first[call] = {"first_call_s": first_s, **memory.as_numbers()}
        for number in range(options.warmup):
            function(number)
    found = latencies(
        calls,
        turns=options.repeats,
        num_calls=options.calls,
        seconds=options.seconds,
        device=session.device,
    )
    return {
        call: {
            "users_per_s": latency.averages().per_second(num_users).as_dict(),
            "latency_ms": latency.as_dict(),
            "num_calls": latency.num_calls,
            **first[call],
        }
        for call, latency in found.items()
    }

"""``bench inference``: throughput and latency of scores on the device, by batch size.

Shape suffixes: B pairs, c pairs of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretaste.bench.config import InferenceBench
from foretaste.bench.measure import PeakMemory, latencies, timed
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import scoring, to_device
from foretaste.models.base import NeuralModel
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.precision_flags import float32_products

_PAIRS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
_USERS = {"cpu": (1, 16, 128, 1024), "cuda": (1, 16, 128, 1024, 8192)}
_NUM_INPUTS = 8
"""Number of different inputs that calls take in turn, so that no cache has the next one."""

PAIR_CLOCK = "pairs on the device to scores on the device"
CATALOGUE_CLOCK = "histories on the device to scores of the catalogue on the device"

# On a CPU the C library maps larger arrays anew for every call.
_PAIRS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}
"""Pairs whose users' rows are gathered at once."""


@dataclass(frozen=True, eq=False)
class Call:
    """The function by which one side answers the inputs of a case."""

    side: str
    function: Callable[..., object]
    clock: str


@dataclass(frozen=True)
class Case:
    """Inputs of one size, and the calls that answer them."""

    case: Mapping[str, Any]
    unit: str
    amount: int
    """Number of pairs, users or histories in a call."""
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
    some = _PAIRS if isinstance(model, NeuMF) else _USERS[session.device.type]
    with scoring(model), float32_products(model.device):
        for size in options.batch_sizes or some:
            if isinstance(model, NeuMF):
                yield _pair_case(model, options.seed, size)
            else:
                yield _catalogue_case(model, options.seed, histories, size)


def record_calls(session: Session, options: InferenceBench, case: Case) -> None:
    """Measure the calls of a case, with one row per call."""
    for call, numbers in measure_calls(session, options, case).items():
        session.add(call.side, case.case, call.clock, numbers)


def measure_calls(
    session: Session, options: InferenceBench, case: Case
) -> dict[Call, dict[str, Any]]:
    """Warm up the calls of a case, then time them in turns; returns a row's numbers by call."""
    session.log(f"timing calls of {case.amount:,} {case.unit}")
    calls = {call: partial(case.answer, call) for call in case.calls}
    first: dict[Call, dict[str, Any]] = {}
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
            f"{case.unit}_per_s": latency.averages().per_second(case.amount).as_dict(),
            "latency_ms": latency.as_dict(),
            "num_calls": latency.num_calls,
            **first[call],
        }
        for call, latency in found.items()
    }


def _pair_case(model: NeuMF, seed: int, size: int) -> Case:
    """The case of independent random pairs, with indexes and scores on the device.

    NVIDIA's script timed these. For the model each pair is a user with one candidate.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        tuple(
            torch.randint(bound, (size,), generator=generator).to(model.device)
            for bound in (model.num_users, model.num_items)
        )
        for _ in range(_NUM_INPUTS)
    ]
    at_once = min(size, _PAIRS_AT_ONCE[model.device.type])
    # Of the history of a known user NeuMF asks only whether there is one.
    start_B = torch.arange(at_once + 1, device=model.device)
    one_each = HistoryTensors(start_B, torch.zeros_like(start_B[1:], dtype=torch.int32), 1)

    def scores(user_B: Tensor, item_B: Tensor) -> Tensor:
        parts = zip(*(torch.split(index_B, at_once) for index_B in (user_B, item_B)), strict=True)
        return torch.cat(
            [
                model.score_candidates(
                    model.user_state(user_c, one_each[: len(user_c)]), item_c[:, None]
                )
                for user_c, item_c in parts
            ]
        ).squeeze(1)

    case = {"precision": "fp32", "batch_size": size}
    return Case(case, "samples", size, inputs, [Call(OURS, scores, PAIR_CLOCK)])


def _catalogue_case(model: NeuralModel, seed: int, histories: Histories, size: int) -> Case:
    """The case of the catalogue's scores for histories of random users, both on the device."""
    rng = np.random.default_rng(seed)
    inputs = [
        (to_device(histories.rows(rng.integers(histories.num_users, size=size)), model.device),)
        for _ in range(_NUM_INPUTS)
    ]
    call = Call(OURS, lambda rows: model.score_catalogue(model.fold_in(rows)), CATALOGUE_CLOCK)
    return Case({"precision": "fp32", "batch_size": size}, "users", size, inputs, [call])

"""``bench inference``: throughput and latency of scores on the device, by batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretaste._util.documents import Document
from foretaste.bench.config import InferenceBench, PairsBench
from foretaste.bench.measure import PeakMemory, Spread, latencies, time_call
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import scoring, to_device
from foretaste.models.base import NeuralModel
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.precision_flags import float32_products
from foretaste.training.precision import half_precision

BATCH_SIZES = {"cpu": (1, 16, 128, 1024), "cuda": (1, 16, 128, 1024, 8192)}
_NUM_INPUTS = 8
"""Number of different inputs that calls take in turn, so that no cache has the next one."""

# On a CPU the C library maps larger arrays again for every call.
_PAIRS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}
"""Pairs whose users' rows are gathered at once."""

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

PAIRS_CLOCK = "indexes of users and items on the device to scores on the device"
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
    unit: str = "users"
    """Word for what a batch counts: users or samples."""

    def answer(self, call: Call, number: int) -> object:
        """Make call ``number``; calls take the inputs in turn."""
        return call.function(*self.inputs[number % len(self.inputs)])


def bench_inference(session: Session, options: InferenceBench) -> None:
    """Measure scoring with untrained weights, which do not affect speed."""
    histories = session.histories()
    model = session.build(histories)
    cases = inference_cases(session, model, histories, options)
    if isinstance(options, PairsBench) and options.pairs:
        cases = pair_cases(model, options)
    for case in cases:
        record_calls(session, options, case)


def pair_cases(model: NeuralModel, options: PairsBench) -> Iterator[Case]:
    """Yield one case per number of random pairs and precision. The reference's script timed these;
    for the model a pair is a user with one candidate."""
    at_once = _PAIRS_AT_ONCE[model.device.type]
    for precision in ("fp32", half_precision(model.device)):
        scored = deepcopy(model).to(_DTYPES[precision])

        def scores(
            user_index_B: Tensor, item_index_B: Tensor, scored: NeuralModel = scored
        ) -> Tensor:
            chunks = [torch.split(index_B, at_once) for index_B in (user_index_B, item_index_B)]
            return torch.cat(list(map(partial(_scores_of_pairs, scored), *chunks)))

        with scoring(scored), float32_products(model.device):
            for size in options.pairs:
                generator = torch.Generator().manual_seed(options.seed)
                bounds = (model.num_users, model.num_items)
                inputs = [
                    tuple(
                        torch.randint(bound, (size,), generator=generator).to(model.device)
                        for bound in bounds
                    )
                    for _ in range(_NUM_INPUTS)
                ]
                case: Document = {"precision": precision, "batch_size": size}
                yield Case(case, inputs, [Call(OURS, scores, PAIRS_CLOCK)], "samples")


def _scores_of_pairs(model: NeuralModel, user_index_C: Tensor, item_index_C: Tensor) -> Tensor:
    # NeuMF reads of a known user's history only whether it is empty.
    offsets = torch.arange(len(user_index_C) + 1, device=model.device)
    one_each = HistoryTensors(offsets, torch.zeros_like(offsets[1:], dtype=torch.int32), 1)
    state = model.user_state(user_index_C, one_each)
    return model.score_candidates(state, item_index_C[:, None]).squeeze(1)


def inference_cases(
    session: Session, model: NeuralModel, histories: Histories, options: InferenceBench
) -> Iterator[Case]:
    """Yield one case per batch size; each is measured before the next is made."""

    def scores(user_index_B: Tensor, rows: HistoryTensors) -> Tensor:
        return model.score_catalogue(model.user_state(user_index_B, rows))

    with scoring(model), float32_products(model.device):
        for size in options.batch_sizes or BATCH_SIZES[session.device.type]:
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
    """Measure a case, one row per call; ranks measure at once, and their throughputs add up."""
    ranks, about, rate = session.ranks, case.case, f"{case.unit}_per_s"
    ranks.barrier()
    for call, numbers in measure_calls(session, options, case).items():
        if ranks.size > 1:
            about = about | {"ranks": ranks.size}
            median = torch.tensor(numbers[rate]["median"], dtype=torch.float64)
            numbers[rate] = Spread.of([ranks.total(median).item()]).as_dict()
        session.add(call.side, about, call.clock, numbers)


def measure_calls(session: Session, options: InferenceBench, case: Case) -> dict[Call, Document]:
    """Warm up the calls of a case, then time them in turns; returns a row's numbers by call."""
    num_samples = case.case["batch_size"]
    session.log(f"timing calls of {num_samples:,} {case.unit}")
    calls = {call: partial(case.answer, call) for call in case.calls}
    first: dict[Call, Document] = {}
    for call, function in calls.items():
        memory = PeakMemory(session.device)
        first_s = time_call(partial(function, 0), session.device)
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
            f"{case.unit}_per_s": latency.averages().per_second(num_samples).as_dict(),
            "latency_ms": latency.as_dict(),
            "num_calls": latency.num_calls,
            **first[call],
        }
        for call, latency in found.items()
    }

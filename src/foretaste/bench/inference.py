"""``bench inference``: throughput and latency of scores on the device, by batch size."""

from __future__ import annotations

import time
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
from foretaste.bench.measure import Latency, PeakMemory, Spread, time_call
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


@dataclass(frozen=True)
class Case:
    """Inputs of one size, and the function that answers them."""

    case: Document
    inputs: Sequence[tuple[Any, ...]]
    function: Callable[..., object]
    clock: str
    unit: str = "users"
    """Word for what a batch counts: users or samples."""

    def answer(self, number: int) -> object:
        """Make call ``number``; calls take the inputs in turn."""
        return self.function(*self.inputs[number % len(self.inputs)])


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
                yield Case(case, inputs, scores, PAIRS_CLOCK, "samples")


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
            yield Case(case, inputs, scores, CLOCK)


def record_calls(session: Session, options: InferenceBench, case: Case) -> None:
    """Measure a case in one row; ranks measure at once, and their throughputs add up."""
    ranks, about, rate = session.ranks, case.case, f"{case.unit}_per_s"
    ranks.barrier()
    calls = Calls(session, options, case)
    for _ in range(options.repeats):
        calls.take_turn()
    numbers = calls.as_numbers()
    if ranks.size > 1:
        about = about | {"ranks": ranks.size}
        median = torch.tensor(numbers[rate]["median"], dtype=torch.float64)
        numbers[rate] = Spread.of([ranks.total(median).item()]).as_dict()
    session.add(OURS, about, case.clock, numbers)


class Calls:
    """The calls of a case: the first one, the warm-up, then turns of several timed calls."""

    def __init__(self, session: Session, options: InferenceBench, case: Case) -> None:
        """Make the first call and the warm-up."""
        self._case, self._options, self._device = case, options, session.device
        session.log(f"timing calls of {case.case['batch_size']:,} {case.unit}")
        memory = PeakMemory(self._device)
        first_s = time_call(partial(case.answer, 0), self._device)
        self._first = {"first_call_s": first_s, **memory.as_numbers()}
        for number in range(options.warmup):
            case.answer(number)
        self._turns: list[tuple[float, ...]] = []

    def take_turn(self) -> None:
        """Time one turn's share of the calls and of the seconds, and at least one call."""
        options = self._options
        share = -(-options.calls // options.repeats)
        first = share * len(self._turns)
        # Between turns, `benchmarks/` measures another side, which fills the caches.
        self._case.answer(first)
        ends_at = time.perf_counter() + options.seconds / options.repeats
        times: list[float] = []
        for number in range(first, first + share):
            if times and time.perf_counter() >= ends_at:
                break
            times.append(time_call(partial(self._case.answer, number), self._device))
        self._turns.append(tuple(times))

    def as_numbers(self) -> Document:
        """Return the entries of a row."""
        latency, unit = Latency(tuple(self._turns)), self._case.unit
        rate = latency.averages().per_second(self._case.case["batch_size"])
        return {
            f"{unit}_per_s": rate.as_dict(),
            "latency_ms": latency.as_dict(),
            "num_calls": latency.num_calls,
            **self._first,
        }

"""``bench inference``: throughput and latency of scores on the device, by batch size.

Shape suffixes: B pairs, c pairs of a chunk, R rows of a table, F factors, E embedding width, H
width after the tower's split first layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.bench.config import InferenceBench, NeuMFInferenceBench
from foretaste.bench.measure import PeakMemory, latencies, timed
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import scoring, to_device
from foretaste.models.base import NeuralModel
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.neumf_loss import chunked
from foretaste.ops.neumf_loss.inputs import InteractionInputs, with_users
from foretaste.ops.precision_flags import float32_products
from foretaste.training.precision import PrecisionPolicy

_PAIRS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
_USERS = {"cpu": (1, 16, 128, 1024), "cuda": (1, 16, 128, 1024, 8192)}
_NUM_INPUTS = 8
"""Number of different inputs that calls take in turn, so that no cache has the next one."""

PAIR_CLOCK = "pairs on the device to scores on the device"
CATALOGUE_CLOCK = "histories on the device to scores of the catalogue on the device"

# On a CPU the C library maps larger arrays anew for every call.
_PAIRS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 20}
"""Pairs whose users' rows are gathered at once."""

_Tables = tuple[Tensor, Tensor]
"""Factors [R, F] of users or items, and the tower's rows: embeddings, or their projections."""


@dataclass(frozen=True, eq=False)
class Call:
    """The function by which one side answers the inputs of a case."""

    side: str
    function: Callable[..., object]
    clock: str
    differs: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the row besides the case: the form of the tables, the precision."""


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
    """One case per precision and batch size; each is measured before the next is made."""
    some = _PAIRS if isinstance(model, NeuMF) else _USERS[session.device.type]
    sizes = options.batch_sizes or some
    with scoring(model):
        if isinstance(model, NeuMF) and isinstance(options, NeuMFInferenceBench):
            for precision in options.precision:
                policy = PrecisionPolicy(precision=precision, device=model.device)
                with policy.products():
                    yield from map(partial(_pair_case, model, options.seed, policy), sizes)
        else:
            with float32_products(model.device):
                yield from map(partial(_catalogue_case, model, options.seed, histories), sizes)


def record_calls(session: Session, options: InferenceBench, case: Case) -> None:
    """Measure the calls of a case, with one row per call."""
    for call, numbers in measure_calls(session, options, case).items():
        session.add(call.side, {**case.case, **call.differs}, call.clock, numbers)


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


def _pair_case(model: NeuMF, seed: int, policy: PrecisionPolicy, size: int) -> Case:
    """The case of independent random pairs, with indexes and scores on the device."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        tuple(
            torch.randint(bound, (size,), generator=generator).to(model.device)
            for bound in (model.num_users, model.num_items)
        )
        for _ in range(_NUM_INPUTS)
    ]
    scorer = PairScorer(model, policy.compute_dtype)
    projected = Call(
        OURS,
        partial(scorer.projected, scorer.project()),
        f"{PAIR_CLOCK}, from tables projected beforehand",
        {"form": "projecting outside the clock"},
    )
    unprojected = Call(
        OURS,
        scorer.unprojected,
        f"{PAIR_CLOCK}, projection included",
        {"form": "projecting inside the clock"},
    )
    case = {"precision": policy.precision, "batch_size": size}
    return Case(case, "samples", size, inputs, [projected, unprojected])


def _catalogue_case(model: NeuralModel, seed: int, histories: Histories, size: int) -> Case:
    """The case of the catalogue's scores for histories of random users, both on the device."""
    rng = np.random.default_rng(seed)
    inputs = [
        (to_device(histories.rows(rng.integers(histories.num_users, size=size)), model.device),)
        for _ in range(_NUM_INPUTS)
    ]
    call = Call(OURS, lambda rows: model.score_catalogue(model.fold_in(rows)), CATALOGUE_CLOCK)
    return Case({"precision": "fp32", "batch_size": size}, "users", size, inputs, [call])


# NVIDIA's script timed independent pairs. No list needs these: the model scores the catalogue or
# candidates of a user, whose side is then projected once.
class PairScorer:
    """Scorer of pairs on the model's device, with the tower's products in one dtype."""

    def __init__(self, model: NeuMF, compute_dtype: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.compute_dtype = compute_dtype
        weight_HE, bias_H, *self._hidden = (
            parameter.detach().to(compute_dtype or parameter.dtype)
            for layer in model.tower
            for parameter in layer.parameters()
        )
        user_weight_HE, item_weight_HE = weight_HE.chunk(2, dim=1)
        user_tables = (model.user_factors.detach(), model.user_embedding.detach())
        item_tables = (model.item_factors.detach(), model.item_embedding.detach())
        self._users = partial(_projected, user_tables, user_weight_HE, None)
        self._items = partial(_projected, item_tables, item_weight_HE, bias_H)

    @torch.no_grad()
    def project(self) -> InteractionInputs:
        """The projections of all users and items, which are computed once for fixed weights."""
        return self._inputs(self._users(), self._items())

    @torch.no_grad()
    def projected(self, everyone: InteractionInputs, user_B: Tensor, item_B: Tensor) -> Tensor:
        """Logits [B] from the projections of `project`."""
        return self._in_parts(
            lambda user_c, item_c: self._logits(everyone, item_c, user_c), user_B, item_B
        )

    @torch.no_grad()
    def unprojected(self, user_B: Tensor, item_B: Tensor) -> Tensor:
        """Logits [B] from the trained tables.

        The users and items of the pairs are projected, or all users or items if these are fewer.
        """
        if len(item_B) < self.model.num_items:
            items = self._items(item_B)
            item_B = torch.arange(len(item_B), device=item_B.device)
        else:
            items = self._items()
        if len(user_B) >= self.model.num_users:
            return self.projected(self._inputs(self._users(), items), user_B, item_B)
        return self._in_parts(
            lambda user_c, item_c: self._logits(self._inputs(self._users(user_c), items), item_c),
            user_B,
            item_B,
        )

    def _in_parts(
        self, score: Callable[[Tensor, Tensor], Tensor], user_B: Tensor, item_B: Tensor
    ) -> Tensor:
        at_once = _PAIRS_AT_ONCE[user_B.device.type]
        if len(user_B) <= at_once:
            return score(user_B, item_B)
        parts = zip(*(torch.split(index_B, at_once) for index_B in (user_B, item_B)), strict=True)
        return torch.cat([score(user_c, item_c) for user_c, item_c in parts])

    def _inputs(self, users: _Tables, items: _Tables) -> InteractionInputs:
        output = self.model.output.weight.detach()[0]
        factors = self.model.user_factors.shape[1]
        return InteractionInputs(
            user_product_BF=users[0],
            item_product_IF=items[0],
            user_tower_BH=users[1],
            item_tower_IH=items[1],
            output_product_F=output[:factors],
            output_tower_D=output[factors:],
            output_bias_1=self.model.output.bias.detach(),
            hidden=tuple(self._hidden),
        )

    def _logits(
        self, inputs: InteractionInputs, item_B: Tensor, user_B: Tensor | None = None
    ) -> Tensor:
        if user_B is not None:
            users = (inputs.user_product_BF, inputs.user_tower_BH)
            inputs = with_users(inputs, *(table.index_select(0, user_B) for table in users))
        logits_B1 = chunked.logits(inputs, item_B[:, None], compute_dtype=self.compute_dtype)
        return logits_B1.squeeze(1)


def _projected(
    tables: _Tables, weight_HE: Tensor, bias_H: Tensor | None, index_B: Tensor | None = None
) -> _Tables:
    """Factors and projected embeddings of all rows, or of the given ones."""
    factors, embedding = tables
    if index_B is not None:
        factors, embedding = factors.index_select(0, index_B), embedding.index_select(0, index_B)
    return factors, F.linear(embedding.to(weight_HE.dtype), weight_HE, bias_H)

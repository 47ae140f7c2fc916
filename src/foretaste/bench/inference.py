"""``bench inference``: scores on the device by batch size, throughput and latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from foretaste.bench.config import InferenceBench, LatencyConfig, NeuMFInferenceBench
from foretaste.bench.generated import load_histories
from foretaste.bench.measure import Latency, latencies, timed
from foretaste.bench.memory import PeakMemory, check_calls_fit
from foretaste.bench.pairs import PairScorer
from foretaste.bench.plain_neumf import PlainNeuMF, PlainNeuMFRanker
from foretaste.bench.plain_vae import PlainVAE, PlainVAERanker
from foretaste.bench.rows import OURS, PLAIN, Recorder, Row
from foretaste.bench.shapes import parse_shape
from foretaste.bench.subject import Subject
from foretaste.data.histories import Histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.evaluation.ranking import scoring, to_device
from foretaste.models.base import NeuralModel
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.config import VAEConfig
from foretaste.models.vae.model import MultVAE
from foretaste.ops.device import resolve_device
from foretaste.ops.precision_flags import float32_products
from foretaste.training.precision import PrecisionPolicy

_PAIRS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
_USERS = {"cpu": (1, 16, 128, 1024), "cuda": (1, 16, 128, 1024, 8192)}
_INPUTS = 8
"""Different inputs that calls go through in turn, so that no cache knows the next."""

_PROJECTED = "projecting outside the clock"
_UNPROJECTED = "projecting inside the clock"
_PAIR_CLOCK = "pairs on the device to scores on the device"


@dataclass(frozen=True)
class Case:
    """Calls of several sides on inputs of one size."""

    case: Mapping[str, Any]
    unit: str
    amount: int
    """Pairs, users or histories in a call."""
    calls: Mapping[str, Callable[[int], object]]
    """By name of the side; ours may come in several forms: ``foretaste, form``."""
    clocks: Mapping[str, str]


def bench_inference(
    subject: Subject, options: InferenceBench, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Measure scoring with untrained weights: they change nothing about speed."""
    device = resolve_device(options.device)
    shape = parse_shape(options.shape, subject.name)
    recorder = Recorder("inference", subject.name, options, device, subject.settings(), tell)
    tell(f"generating {shape.num_interactions:,} interactions")
    histories = load_histories(shape, options.data_cache)
    model = subject.build(histories, device, options.seed)
    sizes = options.batch_sizes or (_PAIRS if isinstance(model, NeuMF) else _USERS[device.type])
    with scoring(model):
        numbers_per_row = 1 if isinstance(model, NeuMF) else histories.num_items
        for size in sizes:
            check_calls_fit(size, numbers_per_row, _INPUTS)
        for make_case in _cases(subject, model, histories, options):
            for size in sizes:
                tell(f"scoring {size:,} at a time")
                record_latencies(recorder, options, make_case(size), shape, device)
    return recorder.rows


def _cases(
    subject: Subject, model: NeuralModel, histories: Histories, options: InferenceBench
) -> Iterator[Callable[[int], Case]]:
    """For each precision, what makes the case of a batch size while its products hold."""
    if not isinstance(options, NeuMFInferenceBench):
        with float32_products(model.device):
            yield partial(_catalogue_case, subject, model, histories, options)
        return
    for precision in options.precision:
        policy = PrecisionPolicy(precision=precision, device=model.device)
        with policy.products():
            yield partial(_pair_case, subject, model, options, policy)


def record_latencies(
    recorder: Recorder,
    options: LatencyConfig,
    case: Case,
    shape: GenerateConfig,
    device: torch.device,
) -> None:
    """Warm up and time the calls of a case; one row per side."""
    first_s, memory_mib, meaning = {}, {}, ""
    for name, call in case.calls.items():
        memory = PeakMemory(device)
        first_s[name] = timed(lambda call=call: call(0), device)  # type: ignore[misc]
        memory_mib[name], meaning = memory.rise_mib(), memory.meaning
        for number in range(options.warmup):
            call(number)
    found = latencies(
        case.calls,
        turns=options.repeats,
        num_calls=options.calls,
        seconds=options.seconds,
        device=device,
    )
    for name, latency in reversed(found.items()):
        side, _, form = name.partition(", ")
        measured = _numbers(case, latency) | {
            "first_call_s": first_s[name],
            "peak_memory_mib": memory_mib[name],
            "peak_memory_is": meaning,
        }
        if side != PLAIN and PLAIN in found:
            times = found[PLAIN].averages().over(latency.averages())
            measured["times_plain"] = times.as_dict()
        described = {**case.case, "form": form} if form else dict(case.case)
        if side == PLAIN:
            described["precision"] = "fp32"
        recorder.add(side, described, case.clocks[name], measured, shape=shape)


def _numbers(case: Case, latency: Latency) -> dict[str, Any]:
    return {
        f"{case.unit}_per_s": latency.averages().per_second(case.amount).as_dict(),
        "latency_ms": latency.as_dict(),
        "num_calls": latency.num_calls,
    }


def _pair_case(
    subject: Subject,
    model: NeuralModel,
    options: InferenceBench,
    policy: PrecisionPolicy,
    size: int,
) -> Case:
    """Independent random pairs, their indexes and the scores on the device."""
    assert isinstance(model, NeuMF)
    generator = torch.Generator().manual_seed(options.seed)
    inputs = [
        tuple(
            torch.randint(bound, (size,), generator=generator).to(model.device)
            for bound in (model.num_users, model.num_items)
        )
        for _ in range(_INPUTS)
    ]
    scorer = PairScorer(model, policy.compute_dtype)
    tables = scorer.project()
    calls: dict[str, Callable[[int], object]] = {
        f"{OURS}, {_PROJECTED}": lambda number: scorer.projected(tables, *inputs[number % _INPUTS]),
        f"{OURS}, {_UNPROJECTED}": lambda number: scorer.unprojected(*inputs[number % _INPUTS]),
    }
    clocks = {
        f"{OURS}, {_PROJECTED}": f"{_PAIR_CLOCK}, from tables projected beforehand",
        f"{OURS}, {_UNPROJECTED}": f"{_PAIR_CLOCK}, projection included",
    }
    if options.against == PLAIN:
        ranker = plain_neumf_ranker(subject, model)
        calls[PLAIN] = lambda number: ranker.pairs(*inputs[number % _INPUTS])
        clocks[PLAIN] = _PAIR_CLOCK
    case = {"precision": policy.precision, "batch_size": size}
    return Case(case, "samples", size, calls, clocks)


def _catalogue_case(
    subject: Subject, model: NeuralModel, histories: Histories, options: InferenceBench, size: int
) -> Case:
    """The catalogue's scores for histories of random users, both on the device."""
    rng = np.random.default_rng(options.seed)
    inputs = [
        to_device(histories.rows(rng.integers(histories.num_users, size=size)), model.device)
        for _ in range(_INPUTS)
    ]
    calls: dict[str, Callable[[int], object]] = {
        OURS: lambda number: model.score_catalogue(model.fold_in(inputs[number % _INPUTS]))
    }
    clocks = {OURS: "histories on the device to scores of the catalogue on the device"}
    if options.against == PLAIN:
        ranker = plain_vae_ranker(subject, model)
        calls[PLAIN] = lambda number: ranker.scores(inputs[number % _INPUTS])
        clocks[PLAIN] = clocks[OURS] + ", rows made dense"
    return Case({"precision": "fp32", "batch_size": size}, "users", size, calls, clocks)


def plain_neumf_ranker(subject: Subject, model: NeuralModel) -> PlainNeuMFRanker:
    """The plain network with the weights of ours."""
    assert isinstance(model, NeuMF)
    assert isinstance(subject.model, NeuMFConfig)
    plain = PlainNeuMF(subject.model, model.num_users, model.num_items).to(model.device)
    plain.copy_weights(model)
    return PlainNeuMFRanker(plain, model.num_items)


def plain_vae_ranker(subject: Subject, model: NeuralModel) -> PlainVAERanker:
    """The plain network with the weights of ours."""
    assert isinstance(model, MultVAE)
    assert isinstance(subject.model, VAEConfig)
    plain = PlainVAE(subject.model, model.num_items).to(model.device)
    plain.copy_weights(model)
    return PlainVAERanker(plain)

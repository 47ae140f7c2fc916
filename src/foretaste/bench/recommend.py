"""``bench recommend``: end to end, from what is known of users to lists of ids on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste.bench.config import RecommendBench
from foretaste.bench.generated import load_histories, random_histories
from foretaste.bench.inference import (
    Case,
    plain_neumf_ranker,
    plain_vae_ranker,
    record_latencies,
)
from foretaste.bench.memory import check_calls_fit
from foretaste.bench.ranking import bench_all_users
from foretaste.bench.rows import OURS, PLAIN, Recorder, Row
from foretaste.bench.shapes import parse_shape, shape_of
from foretaste.bench.subject import Subject
from foretaste.data.histories import Histories
from foretaste.data.ids import IdTable
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.errors import SettingError
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import NeuralModel
from foretaste.ops.device import resolve_device
from foretaste.recommend.recommender import Recommender

_BATCH_SIZES = (1, 16, 256)
_INPUTS = 64
_MOST_ROWS = 1024
"""Rows drawn in all for large batches: fewer inputs serve, no cache holds one."""

_KNOWN = "known users"
_NEW = "new users"


def bench_recommend(
    subject: Subject, options: RecommendBench, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Measure answers, or the ranking of the catalogue for all users."""
    device = resolve_device(options.device)
    shape = parse_shape(options.shape, subject.name)
    name = "rank-all" if options.all_users else "recommend"
    recorder = Recorder(name, subject.name, options, device, subject.settings(), tell)
    if options.history_length is not None:
        shape = _shape_of_random(shape, options.history_length)
    tell(f"generating {shape.num_interactions:,} interactions")
    if options.history_length is None:
        histories = load_histories(shape, options.data_cache)
    else:
        histories = random_histories(shape, options.history_length, options.seed)
    model = subject.build(histories, device, options.seed).eval()
    if options.all_users:
        bench_all_users(subject, model, histories, options, recorder, shape, device)
        return recorder.rows
    sizes = options.batch_sizes or _BATCH_SIZES
    for size in sizes:
        check_calls_fit(size, min(options.k, shape.num_items), 2)
    users = IdTable.from_ids("user", range(histories.num_users))
    items = IdTable.from_ids("item", range(histories.num_items))
    recommender = Recommender(model, users, items, histories)
    are_known = subject.name == "neumf" and options.history_length is None
    kinds = (_KNOWN, _NEW) if are_known else (_NEW,)
    for kind in kinds:
        for size in sizes:
            tell(f"recommending to {size:,} {kind} at a time")
            make = _known_case if kind == _KNOWN else _new_case
            case = make(subject, recommender, histories, options, size)
            record_latencies(recorder, options, case, shape, device)
    return recorder.rows


def _shape_of_random(shape: GenerateConfig, length: int) -> GenerateConfig:
    """The same users and items, with histories of that length."""
    if length > shape.num_items:
        raise SettingError(
            f"history_length is {length}, but there are {shape.num_items:,} items; ask for "
            "fewer or give another shape"
        )
    return shape_of(shape.num_users, shape.num_items, shape.num_users * length)


def _known_case(
    subject: Subject,
    recommender: Recommender,
    histories: Histories,
    options: RecommendBench,
    size: int,
) -> Case:
    """Ids of users that were trained on."""
    inputs = _drawn_users(histories, options, size)
    asked = [users.tolist() for users in inputs]
    k = options.k
    calls: dict[str, Callable[[int], object]] = {
        OURS: lambda number: recommender.recommend(asked[number % len(asked)], k)
    }
    clocks = {OURS: f"user ids on the host to answers with {k} item ids on the host"}
    if options.against == PLAIN:
        model = _neural(recommender)
        ranker = plain_neumf_ranker(subject, model)

        def plain(number: int) -> object:
            users = inputs[number % len(inputs)]
            rows = to_device(histories.rows(users), model.device)
            index = torch.tensor(users, device=model.device)
            return ranker.lists(index, rows, k).tolist()

        calls[PLAIN] = plain
        clocks[PLAIN] = f"user indexes on the host to lists of {k} item indexes on the host"
    return Case(_described(_KNOWN, size, options), "users", size, calls, clocks)


def _new_case(
    subject: Subject,
    recommender: Recommender,
    histories: Histories,
    options: RecommendBench,
    size: int,
) -> Case:
    """Histories of item ids of users that nothing else is known of."""
    inputs = [
        _item_lists(histories.rows(users)) for users in _drawn_users(histories, options, size)
    ]
    k = options.k
    calls: dict[str, Callable[[int], object]] = {
        OURS: lambda number: recommender.recommend_for(inputs[number % len(inputs)], k)
    }
    clocks = {OURS: f"histories of item ids on the host to answers with {k} ids on the host"}
    if options.against == PLAIN and subject.name == "vae":
        ranker = plain_vae_ranker(subject, _neural(recommender))
        calls[PLAIN] = lambda number: ranker.lists(inputs[number % len(inputs)], k)
        clocks[PLAIN] = f"histories of item indexes on the host to lists of {k} on the host"
    return Case(_described(_NEW, size, options), "users", size, calls, clocks)


def _neural(recommender: Recommender) -> NeuralModel:
    assert isinstance(recommender.model, NeuralModel)
    return recommender.model


def _described(kind: str, size: int, options: RecommendBench) -> dict[str, Any]:
    case = {"precision": "fp32", "users": kind, "batch_size": size, "k": options.k}
    if options.history_length is not None:
        case["history_length"] = options.history_length
    return case


def _drawn_users(
    histories: Histories, options: RecommendBench, size: int
) -> Sequence[NDArray[np.int64]]:
    rng = np.random.default_rng(options.seed)
    num_inputs = max(2, min(_INPUTS, _MOST_ROWS // size))
    return [rng.integers(histories.num_users, size=size) for _ in range(num_inputs)]


def _item_lists(histories: Histories) -> list[list[int]]:
    return [row.tolist() for row in np.split(histories.item_index, histories.offsets[1:-1])]

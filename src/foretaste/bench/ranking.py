"""``bench recommend --all-users``: the whole catalogue ranked for everyone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from foretaste.bench.config import RecommendBench
from foretaste.bench.inference import plain_neumf_ranker, plain_vae_ranker
from foretaste.bench.measure import Spread, timed
from foretaste.bench.memory import PeakMemory
from foretaste.bench.rows import OURS, PLAIN, Recorder
from foretaste.bench.subject import Subject
from foretaste.data.histories import Histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import NeuralModel
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.top_k import UserRanker

_PLAIN_VAE_USERS = 500
_CLOCKS = {
    OURS: "histories and user indexes on the host to lists on the host, seen items left out",
    PLAIN: "histories and user indexes on the device to lists on the host, seen items left out",
}


def bench_all_users(
    subject: Subject,
    model: NeuralModel,
    histories: Histories,
    options: RecommendBench,
    recorder: Recorder,
    shape: GenerateConfig,
    device: torch.device,
) -> None:
    """Rank for all users, or as many as asked for; ours and plain in turns."""
    users = _chosen_users(histories, options)
    calls = {OURS: _our_ranking(model, histories, users, options.k)}
    if options.against == PLAIN:
        calls[PLAIN] = _plain_ranking(subject, model, histories, users, options.k)
    measured: dict[str, dict[str, Any]] = {name: {} for name in calls}
    for name, call in calls.items():
        recorder.tell(f"ranking {len(users):,} users: {name}")
        memory = PeakMemory(device)
        measured[name]["warmup_s"] = sum(timed(call, device) for _ in range(options.warmup))
        measured[name]["peak_memory_mib"] = memory.rise_mib()
        measured[name]["peak_memory_is"] = memory.meaning
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.repeats):
        for name, call in calls.items():
            seconds[name].append(timed(call, device))
    case = {"precision": "fp32", "num_users": len(users), "k": options.k}
    for name in reversed(calls):
        spread = Spread.of(seconds[name])
        measured[name]["seconds"] = spread.as_dict()
        measured[name]["users_per_s"] = spread.per_second(len(users)).as_dict()
        measured[name]["pairs_per_s"] = spread.per_second(
            len(users) * histories.num_items
        ).as_dict()
        if name == OURS and PLAIN in seconds:
            measured[name]["times_plain"] = Spread.of(seconds[PLAIN]).over(spread).as_dict()
        recorder.add(name, case, _CLOCKS[name], measured[name], shape=shape)


def _chosen_users(histories: Histories, options: RecommendBench) -> np.ndarray:
    if options.num_users is None or options.num_users >= histories.num_users:
        return np.arange(histories.num_users)
    order = np.random.default_rng(options.seed).permutation(histories.num_users)
    return np.sort(order[: options.num_users])


def _our_ranking(
    model: NeuralModel, histories: Histories, users: np.ndarray, k: int
) -> Callable[[], object]:
    """What ``recommend --all`` computes, without writing it."""
    item_filter = ItemFilter(
        is_allowed=np.ones(histories.num_items, dtype=bool),
        contents="item{s} in the catalogue",
        notes=(),
    )
    ranker = UserRanker(model, item_filter, k=k, include_seen=False)
    return partial(ranker.rank, histories.rows(users), users)


def _plain_ranking(
    subject: Subject, model: NeuralModel, histories: Histories, users: np.ndarray, k: int
) -> Callable[[], object]:
    rows = to_device(histories.rows(users), model.device)
    if subject.name == "neumf":
        index = torch.tensor(users, device=model.device)
        return partial(plain_neumf_ranker(subject, model).lists, index, rows, k)
    return partial(plain_vae_ranker(subject, model).rank, rows, k, _PLAIN_VAE_USERS)

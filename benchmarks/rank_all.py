"""Ranking of the whole catalogue for all users, beside the plain network of the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.command import PLAIN, add_ratio, run
from benchmarks.plain_neumf import PlainNeuMFRanker
from benchmarks.plain_vae import PlainVAERanker
from foretaste._util.settings import Count
from foretaste.bench.config import BenchConfig
from foretaste.bench.measure import PeakMemory, Spread, time_call
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.evaluation.ranking import to_device
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.model import MultVAE
from foretaste.recommend.config import ListRequest
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.top_k import UserHistories, UserRanker

_PLAIN_VAE_USERS = 500
_CLOCKS = {
    OURS: "histories and user indexes on the host to lists on the host, seen items left out",
    PLAIN: "histories and user indexes on the device to lists on the host, seen items left out",
}


@dataclass(frozen=True, kw_only=True)
class RankAll(BenchConfig):
    """Options of ranking for everyone."""

    k: Count = 100
    """Items per list."""

    num_users: Count | None = None
    """Number of ranked users, chosen by chance; None ranks all."""


NAME = "rank-all"
OPTIONS = dict.fromkeys(("neumf", "vae"), RankAll)


def measure(session: Session, options: RankAll) -> None:
    """Measure two rows, plain and ours, alternately."""
    histories = session.histories()
    model = session.build(histories).eval()
    users = np.arange(histories.num_users)
    if options.num_users is not None:
        users = np.random.default_rng(options.seed).permutation(users)[: options.num_users]
        users.sort()
    everything = np.ones(histories.num_items, dtype=bool)
    item_filter = ItemFilter(is_allowed=everything, contents="item{s} in the catalogue", notes=())
    ranker = UserRanker(model, item_filter, ListRequest(k=options.k))
    asked = UserHistories(users, histories.rows(users), [()] * len(users))
    calls: dict[str, Callable[[], object]] = {OURS: partial(ranker.rank, asked)}
    rows = to_device(histories.rows(users), session.device)
    if isinstance(model, NeuMF):
        index = torch.tensor(users, device=session.device)
        calls[PLAIN] = partial(PlainNeuMFRanker(model).lists, index, rows, options.k)
    else:
        assert isinstance(model, MultVAE)
        rank = PlainVAERanker(model).rank
        calls[PLAIN] = partial(rank, rows, options.k, _PLAIN_VAE_USERS)
    measured: dict[str, dict[str, Any]] = {}
    for side, call in calls.items():
        session.log(f"ranking {len(users):,} users: {side}")
        memory = PeakMemory(session.device)
        warmup_s = sum(time_call(call, session.device) for _ in range(options.warmup))
        measured[side] = {"warmup_s": warmup_s, **memory.as_numbers()}
    seconds: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(options.repeats):
        for side, call in calls.items():
            seconds[side].append(time_call(call, session.device))
    for side, numbers in measured.items():
        spread = Spread.of(seconds[side])
        numbers["seconds"] = spread.as_dict()
        numbers["users_per_s"] = spread.per_second(len(users)).as_dict()
        numbers["pairs_per_s"] = spread.per_second(len(users) * histories.num_items).as_dict()
    add_ratio(measured[OURS], measured[PLAIN], "users_per_s")
    case = {"precision": "fp32", "num_users": len(users), "k": options.k}
    for side in (PLAIN, OURS):
        session.add(side, case, _CLOCKS[side], measured[side])


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)

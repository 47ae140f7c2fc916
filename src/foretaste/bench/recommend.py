"""``bench recommend``: times answers end to end, from ids or histories to lists of ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from foretaste._util.documents import Document
from foretaste.bench.config import RecommendBench
from foretaste.bench.inference import Case, record_calls
from foretaste.bench.session import Session, shape_of
from foretaste.data.histories import Histories
from foretaste.data.ids import IdTable
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.errors import SettingError
from foretaste.evaluation.candidates import distinct_ranks
from foretaste.models.base import NeuralModel
from foretaste.recommend.recommender import Recommender

_BATCH_SIZES = (1, 16, 256)
_MAX_INPUTS = 64
_MAX_ROWS = 1024
"""Most users in the inputs of a case; large batches need few inputs, because no cache holds one."""

KNOWN = "known users"
NEW = "new users"


def bench_recommend(session: Session, options: RecommendBench) -> None:
    """Measure answers with untrained weights, which do not affect speed."""
    histories = query_histories(session, options)
    for case in recommend_cases(session, session.build(histories).eval(), histories, options):
        record_calls(session, options, case)


def query_histories(session: Session, options: RecommendBench) -> Histories:
    """Return histories of the session's data, or random histories of the given length."""
    length = options.history_length
    if length is None:
        return session.histories()
    shape = session.shape
    if length > shape.num_items:
        raise SettingError(
            f"history_length is {length}, but there are {shape.num_items:,} items; ask for "
            "fewer or give another shape"
        )
    session.shape = shape_of(shape.num_users, shape.num_items, shape.num_users * length)
    return random_histories(session.shape, length, options.seed)


def random_histories(shape: GenerateConfig, length: int, seed: int) -> Histories:
    """Return ``length`` distinct items for each user; all sets of items are equally likely."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (shape.num_users, length), generator=generator)
    items, _ = distinct_ranks(words, torch.full((shape.num_users,), shape.num_items))
    return Histories(
        offsets=np.arange(shape.num_users + 1) * length,
        item_index=items.sort().values.flatten().to(torch.int32).numpy(),
        num_items=shape.num_items,
    )


def recommend_cases(
    session: Session, model: NeuralModel, histories: Histories, options: RecommendBench
) -> Iterator[Case]:
    """Yield a case per batch size: ids of known users for NeuMF, then histories for both models."""
    sizes = options.batch_sizes or _BATCH_SIZES
    users = IdTable.from_ids("user", range(histories.num_users))
    items = IdTable.from_ids("item", range(histories.num_items))
    recommender = Recommender(model, users, items, histories)
    are_known = session.name == "neumf" and options.history_length is None
    for kind in (KNOWN, NEW) if are_known else (NEW,):
        for size in sizes:
            rng = np.random.default_rng(options.seed)
            num_inputs = max(2, min(_MAX_INPUTS, _MAX_ROWS // size))
            drawn = [rng.integers(histories.num_users, size=size) for _ in range(num_inputs)]
            case: Document = {"precision": "fp32", "users": kind}
            case |= {"batch_size": size, "k": options.k}
            if options.history_length is not None:
                case["history_length"] = options.history_length
            if kind == KNOWN:
                clock = f"user ids on the host to answers with {options.k} item ids on the host"
                queries: list[Any] = [users.tolist() for users in drawn]
                function: Any = recommender.recommend
            else:
                clock = (
                    f"histories of item ids on the host to answers with {options.k} ids on the host"
                )
                queries = [
                    [items.tolist() for items in np.split(rows.item_index, rows.offsets[1:-1])]
                    for rows in map(histories.rows, drawn)
                ]
                function = recommender.recommend_for
            inputs = [(query, options.k) for query in queries]
            yield Case(case, inputs, function, clock)

"""A session whose generated data are kept for the next measurement, or cut to a few updates."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretaste._util.settings import Count
from foretaste.bench.config import TrainBench
from foretaste.bench.session import Session
from foretaste.bench.train import Case, cases_of, training_case
from foretaste.data.histories import Histories
from foretaste.data.synthetic import generate_histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.models.neumf.config import NeuMFConfig


@dataclass(frozen=True, kw_only=True)
class TrainSteps(TrainBench):
    """Options of `foretaste bench train`, and the length of a measurement."""

    steps: Count | None = None
    """Updates in a measurement, on a part of the data of that size; by default a whole epoch."""


class CachedSession(Session):
    """A session that keeps generated data in a directory, and trains ``options.steps`` updates."""

    def __init__(self, *given: Any, cache: Path | None = None, **more: Any) -> None:
        super().__init__(*given, **more)
        self.cache = cache

    def histories(self) -> Histories:
        if self.cache is None:
            return super().histories()
        return load_histories(self.shape, self.cache)

    def part(self, histories: Histories, batch_size: int) -> Histories:
        steps = self.options.steps if isinstance(self.options, TrainSteps) else None
        return needed_part(self, histories, batch_size, steps)


def training_cases(session: Session, options: TrainBench) -> Iterator[Case]:
    """Yield the data and plan of each batch size and precision, in turn."""
    histories = session.histories()
    for batch_size, precision in cases_of(session, options):
        yield training_case(session, options, histories, batch_size, precision)


def load_histories(shape: GenerateConfig, cache: Path) -> Histories:
    """Return generated histories of that shape, kept in the directory ``cache``."""
    name = f"{shape.num_users}x{shape.num_items}x{shape.num_interactions}-seed{shape.seed}.npz"
    path = cache / name
    if not path.is_file():
        histories = generate_histories(shape)
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{os.getpid()}-{name}")
        np.savez(unfinished, offsets=histories.offsets, item_index=histories.item_index)
        unfinished.replace(path)
    with np.load(path) as arrays:
        return Histories(
            offsets=arrays["offsets"], item_index=arrays["item_index"], num_items=shape.num_items
        )


def needed_part(
    session: Session, histories: Histories, batch_size: int, steps: int | None
) -> Histories:
    """Return a part of the data for ``steps`` updates; all data for None."""
    model, seed = session.model, session.options.seed
    if steps is None:
        return histories
    if not isinstance(model, NeuMFConfig):
        return keep_users(histories, steps * batch_size, seed)
    per_row = 1 + model.num_negatives
    grouped = model.batch_layout == "grouped"
    rows_per_batch = max(1, batch_size // per_row) if grouped else math.ceil(batch_size / per_row)
    return keep_interactions(histories, steps * rows_per_batch, seed)


def keep_interactions(histories: Histories, num_interactions: int, seed: int) -> Histories:
    """Return histories with ``num_interactions``, of random users; other users' rows are empty.

    Users keep their indexes, so an epoch is short and the tables have full size. The last chosen
    user may lose the end of the history.
    """
    if num_interactions >= histories.num_interactions:
        return histories
    lengths = histories.lengths()
    order = np.random.default_rng(seed).permutation(histories.num_users)
    room = num_interactions - (np.cumsum(lengths[order]) - lengths[order])
    kept = np.zeros_like(lengths)
    kept[order] = np.clip(room, 0, lengths[order])
    position = np.arange(histories.num_interactions) - np.repeat(histories.offsets[:-1], lengths)
    return Histories(
        offsets=np.concatenate(([0], np.cumsum(kept))),
        item_index=histories.item_index[position < np.repeat(kept, lengths)],
        num_items=histories.num_items,
    )


def keep_users(histories: Histories, num_users: int, seed: int) -> Histories:
    """Return the histories of ``num_users`` random users, or of all if there are fewer."""
    if num_users >= histories.num_users:
        return histories
    chosen = np.random.default_rng(seed).permutation(histories.num_users)[:num_users]
    return histories.rows(np.sort(chosen))

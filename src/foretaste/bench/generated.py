"""Generated interactions for benchmarks, and as much of them as a measurement needs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from foretaste.data.histories import Histories
from foretaste.data.synthetic import generate_histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.evaluation.candidates import distinct_ranks


def load_histories(shape: GenerateConfig, cache: Path | None) -> Histories:
    """Generated histories of that shape, kept in the directory ``cache`` where one is given."""
    if cache is None:
        return generate_histories(shape)
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


def random_histories(shape: GenerateConfig, length: int, seed: int) -> Histories:
    """So many distinct items of the catalogue for each user, every set of them equally likely."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (shape.num_users, length), generator=generator)
    items, _ = distinct_ranks(words, torch.full((shape.num_users,), shape.num_items))
    return Histories(
        offsets=np.arange(shape.num_users + 1) * length,
        item_index=items.sort().values.flatten().to(torch.int32).numpy(),
        num_items=shape.num_items,
    )


def keep_interactions(histories: Histories, num_interactions: int, seed: int) -> Histories:
    """So many interactions, those of users chosen by chance; the others' rows are empty.

    Users keep their numbers, so a model for all of them trains on part of the data: a short epoch
    with tables of full size. The last user chosen may lose the end of a history.
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
    """The histories of so many users chosen by chance, all of them where there are fewer."""
    if num_users >= histories.num_users:
        return histories
    chosen = np.random.default_rng(seed).permutation(histories.num_users)[:num_users]
    return histories.rows(np.sort(chosen))

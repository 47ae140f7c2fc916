"""Interactions made up from planted tastes: offline, of any shape, and worth learning from.

Items stand on shelves, several to a genre. A user picks a shelf with probability proportional to
``mass * exp(taste * p_user · q_shelf / sqrt(D))``, with standard normal vectors of low width D,
and then an item of the shelf by popularity, which falls as a power of its rank over all items.
Shelves of one genre have similar vectors. Activity is lognormal over users; a user's interactions
spread evenly over a stretch of time of their own.

Shape suffixes: U users, I items, C shelves, D width, N interactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.memory import free_bytes, require_memory
from foretaste.data.config import GenerateConfig
from foretaste.data.histories import Histories
from foretaste.data.titles import genre_names, make_titles

_WIDTH = 10
_ITEMS_PER_SHELF = 25
_MAX_SHELVES_PER_GENRE = 10
_GENRE_SHARE = 0.6
_POPULARITY_EXPONENT = 1.6
_POPULARITY_OFFSET = 0.02
_ACTIVITY_SIGMA = 1.0
_CHUNK_USERS = 8192
_MAX_ROUNDS = 8
_EPOCH_S = 1_600_000_000
_PERIOD_S = 3 * 365 * 86_400


@dataclass(frozen=True, kw_only=True, eq=False)
class Generated:
    """Made-up interactions as a customer would have them."""

    table: pa.Table
    """``user_id``, ``item_id`` (from 1), ``timestamp`` (Unix seconds); pairs are unique."""

    items: pa.Table
    """``item_id``, ``title`` (unique), ``genre``."""


def generate(config: GenerateConfig) -> Generated:
    """Interactions and items of the given shape; the same for the same settings."""
    catalogue = _Catalogue.draw(config)
    histories = _histories(config, catalogue)
    users = histories.row_index()
    table = {
        "user_id": users + np.int32(1),
        "item_id": histories.item_index + np.int32(1),
        "timestamp": _timestamps(config, users),
    }
    genres = np.array(genre_names(config.num_genres))[catalogue.genre_I]
    titles = make_titles(catalogue.genre_I, _rng(config, "titles"))
    items = {
        "item_id": np.arange(1, config.num_items + 1, dtype=np.int32),
        "title": [f"{title} ({genre})" for title, genre in zip(titles, genres, strict=True)],
        "genre": genres.tolist(),
    }
    return Generated(table=pa.table(table), items=pa.table(items))


def generate_histories(config: GenerateConfig) -> Histories:
    """The same interactions as arrays; user and item indexes are the ids less one."""
    return _histories(config, _Catalogue.draw(config))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Catalogue:
    """Items in the order of their shelves, and what draws users to a shelf."""

    genre_I: NDArray[np.int64]
    """Genre of each item, by item index."""

    item_on_shelf: NDArray[np.int32]
    """Item indexes, shelf after shelf: [I]."""

    weight_end: NDArray[np.float64]
    """Running sum of popularity over ``item_on_shelf``, with a leading 0: [I + 1]."""

    shelf_end_C: NDArray[np.int64]
    """Where each shelf ends in ``item_on_shelf``."""

    shelf_vector_CD: NDArray[np.float64]

    @classmethod
    def draw(cls, config: GenerateConfig) -> _Catalogue:
        _check_fits(config)
        rng = _rng(config, "catalogue")
        per_genre = round(config.num_items / (config.num_genres * _ITEMS_PER_SHELF))
        per_genre = min(max(per_genre, 1), _MAX_SHELVES_PER_GENRE)
        num_shelves = config.num_genres * per_genre
        shelf_I = rng.integers(num_shelves, size=config.num_items)
        rank_I = rng.permutation(config.num_items)
        offset = 1 + _POPULARITY_OFFSET * config.num_items
        popularity_I = (rank_I + offset) ** -_POPULARITY_EXPONENT
        order = np.argsort(shelf_I, kind="stable")
        genre_vectors = rng.standard_normal((config.num_genres, 1, _WIDTH))
        own_vectors = rng.standard_normal((config.num_genres, per_genre, _WIDTH))
        vectors = np.sqrt(_GENRE_SHARE) * genre_vectors + np.sqrt(1 - _GENRE_SHARE) * own_vectors
        return cls(
            genre_I=shelf_I // per_genre,
            item_on_shelf=order.astype(np.int32),
            weight_end=np.concatenate(([0.0], np.cumsum(popularity_I[order]))),
            shelf_end_C=np.cumsum(np.bincount(shelf_I, minlength=num_shelves)),
            shelf_vector_CD=vectors.reshape(num_shelves, _WIDTH),
        )

    def shelf_bounds(self) -> NDArray[np.float64]:
        """Popularity up to the start of each shelf and, last, of all: [C + 1]."""
        return self.weight_end[np.concatenate(([0], self.shelf_end_C))]


def _check_fits(config: GenerateConfig) -> None:
    """UnsupportedError where there is no room for what is drawn."""
    num_numbers = (
        2 * config.num_interactions
        + 4 * (config.num_users + config.num_items)
        + 2 * _WIDTH * config.num_genres
    )
    require_memory(
        8 * num_numbers,
        free_bytes(),
        f"generating {config.num_interactions:,} interactions of {config.num_users:,} users with "
        f"{config.num_items:,} items in {config.num_genres:,} genres",
        "ask for fewer",
    )


def _histories(config: GenerateConfig, catalogue: _Catalogue) -> Histories:
    lengths_U = _activity(config)
    chunks = list(_chunks(config, catalogue, lengths_U))
    offsets = np.concatenate(([0], np.cumsum(lengths_U)))
    return Histories(offsets=offsets, item_index=np.concatenate(chunks), num_items=config.num_items)


def _chunks(
    config: GenerateConfig, catalogue: _Catalogue, lengths_U: NDArray[np.int64]
) -> Iterator[NDArray[np.int32]]:
    """Item indexes of some users after the other, so that memory stays bounded."""
    for start in range(0, config.num_users, _CHUNK_USERS):
        rng = _rng(config, "users", start)
        lengths = lengths_U[start : start + _CHUNK_USERS]
        yield _draw_users(config, catalogue, lengths, rng)


def _activity(config: GenerateConfig) -> NDArray[np.int64]:
    """Interactions of each user: lognormal, within bounds, exactly ``num_interactions`` in all."""
    share_U = _rng(config, "activity").lognormal(sigma=_ACTIVITY_SIGMA, size=config.num_users)
    mean = config.num_interactions / config.num_users
    least = min(max(1.0, mean / 6), 20.0)
    most = max(config.num_items // 2, 1)
    low, high = 0.0, 2 * most / share_U.min()
    for _ in range(100):
        scale = (low + high) / 2
        too_many = np.clip(share_U * scale, least, most).sum() > config.num_interactions
        low, high = (low, scale) if too_many else (scale, high)
    wanted_U = np.clip(share_U * low, least, most)
    # Rounding the running sum keeps the total and moves nobody by more than one.
    end_U = np.floor(np.cumsum(wanted_U) * (config.num_interactions / wanted_U.sum()) + 0.5)
    length_U: NDArray[np.int64] = np.diff(end_U, prepend=0).astype(np.int64)
    return length_U


def _draw_users(
    config: GenerateConfig,
    catalogue: _Catalogue,
    lengths: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Distinct items of each user of a chunk, ascending within a user."""
    chance_UC = _shelf_chances(config, catalogue, len(lengths), rng)
    keys = np.zeros(0, dtype=np.int64)
    missing = lengths
    for _ in range(_MAX_ROUNDS):
        # As many draws as are missing: repeats fall away, and nobody ends with too many.
        keys = _distinct(np.concatenate((keys, _draw_pairs(catalogue, chance_UC, missing, rng))))
        missing = lengths - np.bincount(keys // config.num_items, minlength=len(lengths))
        if not missing.any():
            break
    keys = _fill_by_chance(keys, missing, config.num_items, rng)
    return (keys % config.num_items).astype(np.int32)


def _shelf_chances(
    config: GenerateConfig, catalogue: _Catalogue, num_users: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Probability of each shelf for each user, [U, C]."""
    user_vector_UD = rng.standard_normal((num_users, _WIDTH)) * (config.taste / np.sqrt(_WIDTH))
    chance_UC: NDArray[np.float64] = np.exp(user_vector_UD @ catalogue.shelf_vector_CD.T)
    chance_UC *= np.diff(catalogue.shelf_bounds())
    chance_UC /= chance_UC.sum(axis=1, keepdims=True)
    return chance_UC


def _draw_pairs(
    catalogue: _Catalogue,
    chance_UC: NDArray[np.float64],
    num_draws: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Keys ``user * I + item`` of independent draws, repeats included."""
    (users,) = num_draws.nonzero()
    counts = rng.multinomial(num_draws[users], chance_UC[users])
    bounds = catalogue.shelf_bounds()
    cell = np.repeat(np.arange(counts.size), counts.ravel())
    user, shelf = np.divmod(cell, counts.shape[1])
    point = bounds[shelf] + rng.random(len(cell)) * (bounds[shelf + 1] - bounds[shelf])
    place = np.searchsorted(catalogue.weight_end, point, side="right") - 1
    item = catalogue.item_on_shelf[np.minimum(place, len(catalogue.item_on_shelf) - 1)]
    keys: NDArray[np.int64] = users[user] * len(catalogue.item_on_shelf) + item
    return keys


def _fill_by_chance(
    keys: NDArray[np.int64], missing: NDArray[np.int64], num_items: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Users whose shelves ran out take any items they do not have."""
    extra = [keys]
    for user in missing.nonzero()[0]:
        first, last = np.searchsorted(keys, (user * num_items, (user + 1) * num_items))
        free = np.ones(num_items, dtype=bool)
        free[keys[first:last] - user * num_items] = False
        items = rng.choice(free.nonzero()[0], missing[user], replace=False)
        extra.append(user * num_items + items)
    return _distinct(np.concatenate(extra))


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The keys, sorted, each once."""
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def _timestamps(config: GenerateConfig, users: NDArray[np.int32]) -> NDArray[np.int64]:
    rng = _rng(config, "times")
    start_U = rng.integers(_PERIOD_S, size=config.num_users)
    stretch_U = rng.integers(86_400, _PERIOD_S // 6, size=config.num_users)
    return _EPOCH_S + start_U[users] + (rng.random(len(users)) * stretch_U[users]).astype(np.int64)


def _rng(config: GenerateConfig, purpose: str, *more: int) -> np.random.Generator:
    """Draws for one purpose, independent of those for any other."""
    return np.random.default_rng([config.seed, *purpose.encode(), *more])

"""Generated interactions of users with planted tastes, of any shape.

Items form clusters, several to a genre. A user picks a cluster with probability proportional to
``mass * exp(taste * p_user · q_cluster / sqrt(D))``, with standard normal vectors of low width D,
and then an item of the cluster by popularity, which falls as a power of the item's rank.
Clusters of one genre have similar vectors. Activity is lognormal over users; a user's interactions
spread evenly over a stretch of time of their own.

Shape suffixes: U users, I items, C clusters, D width, N interactions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretaste._util.memory import require_memory
from foretaste._util.system import free_bytes
from foretaste.data.histories import Histories
from foretaste.data.synthetic_config import GenerateConfig

_GENRES = (
    "space opera", "ghost story", "heist", "cookery", "courtroom drama", "sea adventure",
    "romance", "spy thriller", "western", "musical", "mountaineering", "comedy of manners",
    "fairy tale", "detective story", "nature film", "time travel", "war drama", "road movie",
    "family saga", "horror", "sport", "silent film", "satire", "biography",
)  # fmt: skip

_ADJECTIVES = (
    "Amber", "Ancient", "Bitter", "Borrowed", "Brave", "Broken", "Burning", "Careful", "Clever",
    "Copper", "Crimson", "Crooked", "Daring", "Distant", "Drifting", "Electric", "Emerald",
    "Empty", "Endless", "Faithful", "Fallen", "Final", "First", "Forgotten", "Fragile", "Frozen",
    "Gentle", "Gilded", "Golden", "Hidden", "Hollow", "Hungry", "Invisible", "Iron", "Ivory",
    "Jolly", "Last", "Little", "Lonely", "Lost", "Lucky", "Midnight", "Missing", "Northern",
    "Paper", "Patient", "Perfect", "Quiet", "Restless", "Rising", "Sacred", "Scarlet", "Secret",
    "Seventh", "Shining", "Silent", "Silver", "Sleeping", "Stolen", "Stubborn", "Sudden",
    "Tender", "Thirteenth", "Twisted", "Velvet", "Wandering", "Whispering", "Wild", "Winter",
    "Wooden",
)  # fmt: skip

_NOUNS = (
    "Anchor", "Archive", "Bell", "Bridge", "Candle", "Caravan", "Castle", "Circus", "Clock",
    "Coast", "Compass", "Corridor", "Crown", "Desert", "Door", "Engine", "Express", "Feather",
    "Festival", "Forest", "Fountain", "Garden", "Gate", "Guest", "Harbour", "Harvest", "Horizon",
    "Hotel", "Island", "Journey", "Kingdom", "Lantern", "Letter", "Library", "Lighthouse", "Map",
    "Market", "Mask", "Meadow", "Mirror", "Mountain", "Night", "Oath", "Ocean", "Orchard",
    "Painter", "Palace", "Piano", "Promise", "Raven", "River", "Road", "Room", "Season",
    "Shadow", "Shepherd", "Signal", "Sister", "Song", "Stair", "Stranger", "Summer", "Theatre",
    "Tide", "Tower", "Train", "Valley", "Violin", "Voyage", "Window",
)  # fmt: skip

_NUM_TITLES = len(_ADJECTIVES) * len(_NOUNS)

_WIDTH = 10
_ITEMS_PER_CLUSTER = 25
_MAX_CLUSTERS_PER_GENRE = 10
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
    """Generated interactions, in the form of a customer's tables."""

    table: pa.Table
    """``user_id``, ``item_id`` (from 1), ``timestamp`` (Unix seconds); pairs are unique."""

    items: pa.Table
    """``item_id``, ``title`` (unique), ``genre``."""


def generate(config: GenerateConfig) -> Generated:
    """Return interactions and items of the given shape; equal settings give equal tables."""
    catalogue = _Catalogue.draw(config)
    histories = _histories(catalogue)
    users = histories.row_index()
    rng = _rng(config, "times")
    start_U = rng.integers(_PERIOD_S, size=config.num_users)
    stretch_U = rng.integers(86_400, _PERIOD_S // 6, size=config.num_users)
    elapsed_s = (rng.random(len(users)) * stretch_U[users]).astype(np.int64)
    table = {
        "user_id": users + np.int32(1),
        "item_id": histories.item_index + np.int32(1),
        "timestamp": _EPOCH_S + start_U[users] + elapsed_s,
    }
    # Further genres repeat the names with a number.
    turns = -(-config.num_genres // len(_GENRES))
    names = [genre if turn == 0 else f"{genre} {turn + 1}" for turn in range(turns)
             for genre in _GENRES]  # fmt: skip
    genres = np.array(names[: config.num_genres])[catalogue.genre_I]
    titles = _titles(catalogue.genre_I, _rng(config, "titles"))
    items = {
        "item_id": np.arange(1, config.num_items + 1, dtype=np.int32),
        "title": [f"{title} ({genre})" for title, genre in zip(titles, genres, strict=True)],
        "genre": genres.tolist(),
    }
    return Generated(table=pa.table(table), items=pa.table(items))


def generate_histories(config: GenerateConfig) -> Histories:
    """Return the interactions of `generate` as arrays; indexes are the ids minus one."""
    return _histories(_Catalogue.draw(config))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Catalogue:
    """Items in the order of their clusters, with the vectors and popularity of the clusters."""

    config: GenerateConfig

    genre_I: NDArray[np.int64]
    """Genre of each item, by item index."""

    item_by_cluster: NDArray[np.int32]
    """Item indexes, cluster after cluster: [I]."""

    weight_end: NDArray[np.float64]
    """Running sum of popularity over ``item_by_cluster``, with a leading 0: [I + 1]."""

    cluster_bounds: NDArray[np.float64]
    """Popularity summed up to the start of each cluster, then the whole sum: [C + 1]."""

    cluster_vector_CD: NDArray[np.float64]

    @classmethod
    def draw(cls, config: GenerateConfig) -> _Catalogue:
        num_numbers = (
            2 * config.num_interactions
            + 4 * (config.num_users + config.num_items)
            + 2 * _WIDTH * config.num_genres
        )
        require_memory(
            8 * num_numbers,
            free_bytes(),
            f"generating {config.num_interactions:,} interactions of {config.num_users:,} users "
            f"with {config.num_items:,} items in {config.num_genres:,} genres",
            "ask for fewer",
        )
        rng = _rng(config, "catalogue")
        per_genre = round(config.num_items / (config.num_genres * _ITEMS_PER_CLUSTER))
        per_genre = min(max(per_genre, 1), _MAX_CLUSTERS_PER_GENRE)
        num_clusters = config.num_genres * per_genre
        cluster_I = rng.integers(num_clusters, size=config.num_items)
        rank_I = rng.permutation(config.num_items)
        offset = 1 + _POPULARITY_OFFSET * config.num_items
        popularity_I = (rank_I + offset) ** -_POPULARITY_EXPONENT
        order = np.argsort(cluster_I, kind="stable")
        genre_vectors = rng.standard_normal((config.num_genres, 1, _WIDTH))
        own_vectors = rng.standard_normal((config.num_genres, per_genre, _WIDTH))
        vectors = np.sqrt(_GENRE_SHARE) * genre_vectors + np.sqrt(1 - _GENRE_SHARE) * own_vectors
        weight_end = np.concatenate(([0.0], np.cumsum(popularity_I[order])))
        cluster_end_C = np.cumsum(np.bincount(cluster_I, minlength=num_clusters))
        return cls(
            config=config,
            genre_I=cluster_I // per_genre,
            item_by_cluster=order.astype(np.int32),
            weight_end=weight_end,
            cluster_bounds=weight_end[np.concatenate(([0], cluster_end_C))],
            cluster_vector_CD=vectors.reshape(num_clusters, _WIDTH),
        )


def _histories(catalogue: _Catalogue) -> Histories:
    config = catalogue.config
    # Interactions of each user: lognormal, within bounds, exactly ``num_interactions`` in all.
    share_U = _rng(config, "activity").lognormal(sigma=_ACTIVITY_SIGMA, size=config.num_users)
    mean = config.num_interactions / config.num_users
    least = min(max(1.0, mean / 6), 20.0)
    most = max(config.num_items // 2, 1)
    # The total grows with the scale, so halving finds the scale; 100 steps suffice, because a float
    # has fewer bits.
    low, high = 0.0, 2 * most / share_U.min()
    for _ in range(100):
        scale = (low + high) / 2
        too_many = np.clip(share_U * scale, least, most).sum() > config.num_interactions
        low, high = (low, scale) if too_many else (scale, high)
    wanted_U = np.clip(share_U * low, least, most)
    # Rounding the running sum keeps the total and changes no user's number by more than one.
    end_U = np.floor(np.cumsum(wanted_U) * (config.num_interactions / wanted_U.sum()) + 0.5)
    lengths_U = np.diff(end_U, prepend=0).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths_U)))
    # `chance_UC` has users x clusters numbers, so users are drawn in chunks.
    chunks = [
        _draw_users(
            catalogue, lengths_U[start : start + _CHUNK_USERS], _rng(config, "users", start)
        )
        for start in range(0, config.num_users, _CHUNK_USERS)
    ]
    return Histories(offsets=offsets, item_index=np.concatenate(chunks), num_items=config.num_items)


def _draw_users(
    catalogue: _Catalogue, lengths: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return distinct items of each user of a chunk, ascending within a user."""
    config = catalogue.config
    user_vector_UD = rng.standard_normal((len(lengths), _WIDTH)) * (config.taste / np.sqrt(_WIDTH))
    chance_UC: NDArray[np.float64] = np.exp(user_vector_UD @ catalogue.cluster_vector_CD.T)
    chance_UC *= np.diff(catalogue.cluster_bounds)
    chance_UC /= chance_UC.sum(axis=1, keepdims=True)
    keys = np.zeros(0, dtype=np.int64)
    missing = lengths
    for _ in range(_MAX_ROUNDS):
        # Draw the missing number. Repeats are removed, so no user ends with too many items.
        keys = _distinct(np.concatenate((keys, _draw_pairs(catalogue, chance_UC, missing, rng))))
        missing = lengths - np.bincount(keys // config.num_items, minlength=len(lengths))
        if not missing.any():
            break
    # Users who have all items of their clusters get any other items.
    extra = [keys]
    for user in missing.nonzero()[0]:
        start = user * config.num_items
        first, last = np.searchsorted(keys, (start, start + config.num_items))
        free = np.ones(config.num_items, dtype=bool)
        free[keys[first:last] - start] = False
        extra.append(start + rng.choice(free.nonzero()[0], missing[user], replace=False))
    return (_distinct(np.concatenate(extra)) % config.num_items).astype(np.int32)


def _draw_pairs(
    catalogue: _Catalogue,
    chance_UC: NDArray[np.float64],
    num_draws: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return keys ``user * I + item`` of independent draws, with repeats."""
    (users,) = num_draws.nonzero()
    counts = rng.multinomial(num_draws[users], chance_UC[users])
    bounds = catalogue.cluster_bounds
    cell = np.repeat(np.arange(counts.size), counts.ravel())
    user, cluster = np.divmod(cell, counts.shape[1])
    # Inverse transform: a uniform point on the running sum of popularity falls into the share of
    # one item.
    point = bounds[cluster] + rng.random(len(cell)) * (bounds[cluster + 1] - bounds[cluster])
    position = np.searchsorted(catalogue.weight_end, point, side="right") - 1
    item = catalogue.item_by_cluster[np.minimum(position, len(catalogue.item_by_cluster) - 1)]
    keys: NDArray[np.int64] = users[user] * len(catalogue.item_by_cluster) + item
    return keys


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys, sorted."""
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def _rng(config: GenerateConfig, purpose: str, *more: int) -> np.random.Generator:
    """Return a generator for one purpose, independent of the generators for other purposes."""
    return np.random.default_rng([config.seed, *purpose.encode(), *more])


def _titles(genre_of_item: NDArray[np.integer], rng: np.random.Generator) -> list[str]:
    """Return a title per item, such as ``The Quiet Harbour``, unique within its genre."""
    order = rng.permutation(_NUM_TITLES)
    used: dict[int, int] = {}
    titles = []
    for genre in genre_of_item.tolist():
        turn, position = divmod(used.get(genre, 0), _NUM_TITLES)
        used[genre] = used.get(genre, 0) + 1
        # Genres start at different points, so their first titles differ.
        pair = int(order[(position + genre * 211) % _NUM_TITLES])
        adjective, noun = divmod(pair, len(_NOUNS))
        sequel = "" if turn == 0 else f" {turn + 1}"
        titles.append(f"The {_ADJECTIVES[adjective]} {_NOUNS[noun]}{sequel}")
    return titles

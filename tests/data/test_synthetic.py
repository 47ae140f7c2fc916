from __future__ import annotations

import numpy as np
import pytest

from foretaste.data import GenerateConfig, Histories, generate, generate_histories
from foretaste.errors import UnsupportedError
from tests.messages import raises

SHAPES = [
    GenerateConfig(num_users=400, num_items=300, num_interactions=9_001),
    GenerateConfig(num_users=1, num_items=1, num_interactions=1),
    GenerateConfig(num_users=50, num_items=20, num_interactions=50),
    GenerateConfig(num_users=40, num_items=30, num_interactions=600, num_genres=40),
    GenerateConfig(num_users=9_000, num_items=500, num_interactions=60_000, num_genres=1),
]


@pytest.mark.parametrize("config", SHAPES)
def test_the_shape_is_exact_and_pairs_are_unique(config: GenerateConfig) -> None:
    table = generate(config).table
    assert table.column_names == ["user_id", "item_id", "timestamp"]
    assert table.num_rows == config.num_interactions
    pairs = set(zip(table["user_id"].to_pylist(), table["item_id"].to_pylist(), strict=True))
    assert len(pairs) == config.num_interactions
    assert {user for user, _ in pairs} == set(range(1, config.num_users + 1))
    assert {item for _, item in pairs} <= set(range(1, config.num_items + 1))


def test_items_have_unique_titles_with_their_genre() -> None:
    items = generate(GenerateConfig(num_items=12_000, num_genres=2, num_interactions=9_000)).items
    titles, genres = items["title"].to_pylist(), items["genre"].to_pylist()
    assert len(set(titles)) == 12_000
    assert set(genres) == {"space opera", "ghost story"}
    assert all(title.startswith("The ") for title in titles)
    assert all(f"({genre})" in title for title, genre in zip(titles, genres, strict=True))


def test_the_seed_decides() -> None:
    first, again = generate(GenerateConfig()), generate(GenerateConfig())
    assert first.table.equals(again.table)
    assert first.items.equals(again.items)
    other = generate(GenerateConfig(seed=1))
    assert not first.table["item_id"].equals(other.table["item_id"])


def test_arrays_are_the_same_interactions() -> None:
    config = GenerateConfig()
    histories, table = generate_histories(config), generate(config).table
    assert histories.num_users == config.num_users
    assert np.array_equal(histories.item_index + 1, table["item_id"].to_numpy())
    assert np.array_equal(histories.row_index() + 1, table["user_id"].to_numpy())
    users, items = histories.row_index(), histories.item_index
    again = Histories.from_pairs(users, items, num_users=2_000, num_items=1_000)
    assert np.array_equal(again.item_index, items)


def test_popularity_and_activity_are_skewed() -> None:
    histories = generate_histories(GenerateConfig())
    popularity = np.sort(np.bincount(histories.item_index, minlength=1_000))[::-1]
    assert popularity[:100].sum() > 0.35 * histories.num_interactions
    assert popularity[500:].sum() < 0.25 * histories.num_interactions
    assert histories.lengths().max() > 5 * np.median(histories.lengths())


def hit_rates(histories: Histories) -> tuple[float, float]:
    """HR@10 over the whole catalogue, of popularity and of EASE, for one item of each user."""
    num_users, num_items = histories.num_users, histories.num_items
    rng = np.random.default_rng(0)
    place = histories.offsets[:-1] + rng.integers(histories.lengths())
    target = histories.item_index[place]
    users = np.arange(num_users)
    seen = np.zeros((num_users, num_items), dtype=np.float64)
    seen[histories.row_index(), histories.item_index] = 1
    seen[users, target] = 0
    inverse = np.linalg.inv(seen.T @ seen + 100 * np.eye(num_items))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    rates = []
    for scores in (np.tile(seen.sum(0), (num_users, 1)), seen @ weights):
        scores[seen > 0] = -np.inf
        num_better = (scores > scores[users, target][:, None]).sum(1)
        rates.append(float((num_better < 10).mean()))
    return rates[0], rates[1]


def test_tastes_can_be_learned() -> None:
    popularity, personal = hit_rates(generate_histories(GenerateConfig()))
    # About .20 against .38; 1.96 standard errors are .02.
    assert personal > popularity + 0.12
    assert popularity > 0.1


def test_without_taste_there_is_nothing_to_learn() -> None:
    popularity, personal = hit_rates(generate_histories(GenerateConfig(taste=0.0)))
    assert personal < popularity + 0.03


@pytest.mark.parametrize("settings", [{"num_genres": 10**9}, {"num_items": 10**12}])
def test_shapes_too_large_for_memory_are_refused_first(settings: dict[str, int]) -> None:
    with raises(UnsupportedError, "60,000"):
        generate_histories(GenerateConfig(**settings))

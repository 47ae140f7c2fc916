"""Known counts of public data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset, PrepareConfig, prepare

pytestmark = pytest.mark.real_data


def prepare_set(real_data: Path, tmp_path: Path, name: str, **settings: object) -> Dataset:
    return prepare(real_data / name, tmp_path / "out", PrepareConfig(**settings))  # type: ignore[arg-type]


def test_ml_1m_as_the_reference_filters_it(real_data: Path, tmp_path: Path) -> None:
    dataset = prepare(
        real_data / "ml-1m" / "ratings.parquet",
        tmp_path / "out",
        PrepareConfig(filters="reference", validation="none"),
        items=real_data / "ml-1m" / "movies.csv",
    )
    manifest = dataset.manifest
    assert manifest.protocol == "leave-one-out"
    assert (manifest.num_users, manifest.num_all_items) == (6_040, 3_706)
    assert dataset.all_interactions().num_interactions == 1_000_209
    assert dataset.train.num_interactions == 1_000_209 - 6_040
    assert dataset.items.titles(dataset.items.lookup([1])) == ["Toy Story (1995)"]


def test_ml_1m_for_held_out_users(real_data: Path, tmp_path: Path) -> None:
    dataset = prepare_set(
        real_data, tmp_path, "ml-1m/ratings.parquet",
        protocol="held-out-users", filters="reference",
    )  # fmt: skip
    counts = dataset.manifest.counts
    num_dropped = sum(
        counts[f"num_{split}_targets_dropped_as_unseen"] for split in ("validation", "test")
    )
    assert dataset.manifest.filters == {"min_rating": 4.0, "min_user_interactions": 5}
    assert dataset.all_interactions().num_interactions + num_dropped == 575_272
    assert num_dropped == 7
    assert (dataset.manifest.num_users, dataset.manifest.num_train_users) == (
        6_034,
        6_034 - 2 * 603,
    )


def test_ml_100k_keeps_everybody(real_data: Path, tmp_path: Path) -> None:
    dataset = prepare_set(real_data, tmp_path, "ml-100k/ratings.csv", filters="reference")
    assert (dataset.manifest.num_users, dataset.manifest.num_all_items) == (943, 1_682)
    assert len(dataset.heldout("test")) == len(dataset.heldout("validation")) == 943


@pytest.mark.parametrize(
    ("name", "num_users", "num_items", "num_rows"),
    [("beauty", 22_363, 12_101, 198_502), ("sports", 35_598, 18_357, 296_337)],
)
def test_lists_give_the_dataset_of_their_pairs(
    real_data: Path, tmp_path: Path, name: str, num_users: int, num_items: int, num_rows: int
) -> None:
    source = real_data / name / "sequences.txt"
    rows = ["user_id,item_id,time_rank"]
    for user, *items in map(str.split, source.read_text().splitlines()):
        rows += [f"{user},{item},{place}" for place, item in enumerate(items)]
    (tmp_path / "pairs.csv").write_text("\n".join(rows))
    lists = prepare(source, tmp_path / "lists", layout="lists").manifest
    assert lists.digest == prepare(tmp_path / "pairs.csv", tmp_path / "pairs").manifest.digest
    assert (lists.num_users, lists.num_all_items) == (num_users, num_items)
    assert lists.counts["num_rows_read"] == lists.counts["num_interactions"] == num_rows


def test_steam_has_repeated_pairs_and_no_times(real_data: Path, tmp_path: Path) -> None:
    dataset = prepare_set(real_data, tmp_path, "steam/purchases.csv")
    assert dataset.manifest.protocol == "held-out-users"
    assert dataset.manifest.counts["num_repeated_pairs"] == 707
    assert dataset.manifest.counts["num_interactions"] == 129_511 - 707


@pytest.mark.parametrize(
    ("name", "num_users", "num_items", "num_interactions"),
    [
        ("lastfm/plays.csv", 1_892, 17_632, 92_834),
        ("citeulike-a/interactions.parquet", 5_551, 16_980, 204_986),
        ("ml-latest-small/ratings.csv", 610, 9_724, 100_836),
    ],
)
def test_sizes(
    real_data: Path,
    tmp_path: Path,
    name: str,
    num_users: int,
    num_items: int,
    num_interactions: int,
) -> None:
    manifest = prepare_set(real_data, tmp_path, name).manifest
    assert (manifest.num_users, manifest.num_all_items) == (num_users, num_items)
    assert manifest.counts["num_interactions"] == num_interactions

"""A disliked item is in no list of that person; the rest of an answer stays the same."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import foretaste
from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.recommend import Recommender, load
from foretaste.recommend.config import ListRequest
from foretaste.recommend.inputs import AskedUsers
from tests.messages import says
from tests.runs.tiny import make_run

# Twelve users like items near their own number. User 3 rates item 9 low, and item 5, which is liked
# as well.
RATINGS = pd.DataFrame(
    [(user, item, 5) for user in range(1, 13) for item in range(user, user + 6)]
    + [(3, 9, 1), (3, 5, 2)],
    columns=["user_id", "item_id", "rating"],
)
LIKED = RATINGS[RATINGS.rating == 5]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen")


def dataset(root: Path, rows: pd.DataFrame, **settings: object) -> Dataset:
    return prepare(rows, root / f"data-{len(list(root.iterdir()))}", PrepareConfig(**settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def recommender(root: Path) -> Recommender:
    data = dataset(root, RATINGS, protocol="none", min_rating=4)
    return load(make_run(root / "run", data, "ease").path, "cpu")


@pytest.fixture(scope="module")
def without(root: Path) -> Recommender:
    """The same model on data without the low ratings."""
    data = dataset(root, LIKED, protocol="none")
    return load(make_run(root / "without", data, "ease").path, "cpu")


def test_a_disliked_item_is_in_no_list_of_the_user(
    recommender: Recommender, without: Recommender
) -> None:
    (expected,), (found,) = (one.recommend(3, k=20) for one in (without, recommender))
    assert 9 in expected.item_ids
    assert found.item_ids == [item for item in expected.item_ids if item != 9]
    says(found.reason, 10, 20, 17, 7)
    others = [user for user in range(1, 13) if user != 3]
    pairs = zip(recommender.recommend(others, k=20), without.recommend(others, k=20), strict=True)
    assert all(here.item_ids == there.item_ids for here, there in pairs)
    assert np.array_equal(recommender.score(3, 9), without.score(3, 9))
    assert recommender.recommend(3, k=20, include_seen=True)[0].item_ids == (
        without.recommend(3, k=20, include_seen=True)[0].item_ids
    )
    assert 9 in recommender.recommend_for([[3, 4, 5]], k=20)[0].item_ids


def test_every_way_to_ask_leaves_it_out(recommender: Recommender, root: Path) -> None:
    assert recommender.recommend(3, k=5, candidates=[9, 10, 11])[0].item_ids == [10, 11]
    file = root / "all.parquet"
    recommender.recommend_all(file, k=20)
    rows = pd.read_parquet(file)
    assert 9 not in set(rows.item_id[rows.user_id == 3])
    copy = pickle.loads(pickle.dumps(recommender))
    assert 9 not in copy.recommend(3, k=20)[0].item_ids
    users = AskedUsers.mixed(
        recommender.users, [3, 4, 3, None], [None, None, [1], [3, 4]], [[], [13], [2, "x"], [9]]
    )
    requests = [
        (2, ListRequest(k=20)),
        (1, ListRequest(k=20, exclude=(10,))),
        (1, ListRequest(k=20, include_seen=True)),
    ]
    first, second, third = recommender.lists_together(users, requests)
    ids = [recommender.items.ids(row[filled]) for top in (first, second, third)
           for row, filled in zip(top.item_index, top.filled(), strict=True)]  # fmt: skip
    assert [{2, 9, 13} & {*one} for one in ids] == [{2, 13}, {2}, {13}, {2, 9, 13}]
    assert 10 not in ids[2]
    assert {3, 9} <= {*ids[3]}
    asked = AskedUsers.mixed(recommender.users, [3, 4], [None, None])
    together = recommender.lists_together(asked, [(1, ListRequest(k=20))] * 2)
    assert ["disliked" in top.remarks[0][0] for top in together] == [True, False]


def test_no_metric_moves(root: Path) -> None:
    """A disliked item is no target and stays among the candidates."""
    found = []
    for name, rows, rule in (("with", RATINGS, {"min_rating": 4}), ("liked", LIKED, {})):
        data = dataset(root, rows, protocol="held-out-users", num_heldout_users=2, **rule)
        run = foretaste.train("ease", data, run=root / name, device="cpu")
        found.append(
            (
                foretaste.evaluate_run(run).metrics,
                foretaste.evaluate_run(run, candidates="sampled-5").metrics,
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("is_prepared", [False, True])
def test_fit_keeps_what_is_disliked(root: Path, tmp_path: Path, is_prepared: bool) -> None:
    if is_prepared:
        data = dataset(root, RATINGS, protocol="leave-one-out", min_rating=4, seed=3)
        fitted = foretaste.fit("ease", data, device="cpu")
    else:
        fitted = foretaste.fit("ease", RATINGS, min_rating=4, device="cpu")
    assert 9 not in fitted.recommend(3, k=20)[0].item_ids
    assert 9 in fitted.recommend(4, k=20, include_seen=True)[0].item_ids
    run = fitted.save(tmp_path / "run")
    assert 9 not in load(run, "cpu").recommend(3, k=20)[0].item_ids

"""Users whom the run knows: original ids, no seen items, exactly k or a reason."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from collections.abc import Callable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from foretaste.errors import SettingError, UnknownIdError, UnsupportedError
from foretaste.recommend import Recommender, load, to_table
from tests.messages import raises, says
from tests.recommend.shop import (
    HISTORIES,
    new_users,
    popularity_order,
    trained_users,
    unseen_item,
)


def test_every_known_user_gets_the_most_popular_unseen_items(popularity: Recommender) -> None:
    users = [*new_users(popularity), *trained_users(popularity)]
    order = popularity_order(popularity)
    for user, answer in zip(users, popularity.recommend(users, k=7), strict=True):
        assert answer.id == user
        assert answer.item_ids == [item for item in order if item not in HISTORIES[user]][:7]


def test_equal_scores_come_in_the_order_of_the_catalogue(popularity: Recommender) -> None:
    order = popularity_order(popularity)
    for k in range(1, len(order) + 1):
        (answer,) = popularity.recommend(trained_users(popularity)[:1], k=k, include_seen=True)
        assert answer.item_ids == order[:k]


def test_a_full_list_has_titles_and_needs_no_reason(popularity: Recommender) -> None:
    (answer,) = popularity.recommend(trained_users(popularity)[:1], k=10)
    assert len(answer.items) == 10
    assert (answer.reason, answer.kind) == (None, "user")
    assert answer.titles == [f"The Book of {item_id}" for item_id in answer.item_ids]


def test_ids_may_repeat_and_come_in_any_order(personal: Recommender) -> None:
    first, second = trained_users(personal)[:2]
    new = new_users(personal)[0]
    asked = [second, new, first, second]
    answers = personal.recommend(asked, k=4)
    assert [answer.id for answer in answers] == asked
    assert answers[0] == answers[3]


def test_batches_of_any_size_agree(popularity: Recommender, limit: Callable[..., None]) -> None:
    users = [*trained_users(popularity), *new_users(popularity)]
    at_once = popularity.recommend(users, k=6)
    limit(score_bytes=7 * 4 * 40)
    assert popularity.recommend(users, k=6) == at_once


def test_seen_items_come_back_with_include_seen(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    (without,) = personal.recommend([user], k=10_000)
    (with_seen,) = personal.recommend([user], k=10_000, include_seen=True)
    assert len(with_seen.items) == personal.run.num_items
    assert set(with_seen.item_ids) - set(without.item_ids) == HISTORIES[user]


def test_a_known_user_held_out_of_training_is_folded_in(personal: Recommender) -> None:
    catalogue = set(popularity_order(personal))
    user = next(user for user in new_users(personal) if HISTORIES[user] & catalogue)
    (by_id,) = personal.recommend([user], k=5)
    (by_history,) = personal.recommend_for([HISTORIES[user] & catalogue], k=5)
    assert by_id.item_ids == by_history.item_ids
    assert by_id.reason is None


def test_a_known_user_without_a_usable_history_gets_popularity(personal: Recommender) -> None:
    catalogue = popularity_order(personal)
    user = next(user for user in new_users(personal) if not HISTORIES[user] & set(catalogue))
    (answer,) = personal.recommend([user], k=5)
    assert answer.item_ids == catalogue[:5]
    says(answer.reason)


def test_items_beyond_the_catalogue_are_never_recommended(personal: Recommender) -> None:
    catalogue = set(popularity_order(personal))
    assert len(catalogue) == personal.run.num_items < len(personal.run.items)
    for answer in personal.recommend(new_users(personal), k=10_000, include_seen=True):
        assert set(answer.item_ids) == catalogue


def test_a_k_beyond_the_catalogue_gives_a_reason(popularity: Recommender) -> None:
    k = 10**12
    user, size = trained_users(popularity)[0], popularity.run.num_items
    num_seen = len(HISTORIES[user])
    (answer,) = popularity.recommend([user], k=max(k, size))
    assert len(answer.items) == size - num_seen
    says(answer.reason, size - num_seen, max(k, size), size, num_seen)


@pytest.mark.parametrize("k", [0, 2.5, "10", None])
def test_k_must_be_a_whole_number_from_one(popularity: Recommender, k: object) -> None:
    user = trained_users(popularity)[0]
    with raises(SettingError, "k", k, 1):
        popularity.recommend([user], k=k)  # type: ignore[arg-type]


def test_unknown_users_are_named(popularity: Recommender) -> None:
    user = trained_users(popularity)[0]
    with raises(UnknownIdError, 2, 3, 7, "x"):
        popularity.recommend([7, user, "x"])
    with raises(UnknownIdError, 9, 9, "0, 1, 2, 3, 4", 4):
        popularity.recommend(range(9))


def test_an_error_holds_the_unknown_ids(popularity: Recommender) -> None:
    user = trained_users(popularity)[0]
    with pytest.raises(UnknownIdError) as caught:
        popularity.recommend([7, user, "x", *range(8)])
    assert caught.value.ids == (7, "x", *range(8))
    assert pickle.loads(pickle.dumps(caught.value)).ids == caught.value.ids
    unseen = unseen_item(popularity)
    with pytest.raises(UnknownIdError) as caught:
        popularity.similar_items([unseen])
    assert caught.value.ids == (unseen,)


def test_unknown_users_may_be_left_out(personal: Recommender) -> None:
    users = trained_users(personal)[:2]
    asked = ["x", users[0], 7, users[1]]
    assert personal.recommend(asked, k=3, unknown="skip") == personal.recommend(users, k=3)
    assert personal.recommend(["x"], unknown="skip") == []


def test_unknown_users_may_be_answered_in_popularity_order(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    first, known, last = personal.recommend(["7", user, "x"], k=3, unknown="popular")
    assert [known] == personal.recommend([user], k=3)
    (popular,) = personal.recommend_for([[]], k=3)
    for answer, name in ((first, 7), (last, "x")):
        assert answer.id == name
        assert (answer.item_ids, answer.scores) == (popular.item_ids, popular.scores)
        says(answer.reason)
    assert to_table([first, known])["user_id"].to_pylist() == [7] * 3 + [user] * 3
    assert set(to_table([first, known, last])["user_id"].to_pylist()) == {"7", str(user), "x"}


def test_another_way_with_unknown_users_is_refused(popularity: Recommender) -> None:
    with raises(SettingError, "unknown", "ignore"):
        popularity.recommend([7], unknown="ignore")  # type: ignore[arg-type]


def test_one_id_equals_a_list_of_one(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    order = popularity_order(personal)
    (expected,) = personal.recommend([user], k=3, candidates=order[:1], exclude=order[1:2])
    for one in (user, str(user), np.int64(user)):
        found = personal.recommend(one, k=3, candidates=order[0], exclude=order[1])
        assert found == [expected]
    assert personal.similar_items(order[0], k=2) == personal.similar_items([order[0]], k=2)


@pytest.mark.parametrize("users", [4.5, None])
def test_ids_must_be_ids(popularity: Recommender, users: object) -> None:
    with raises(SettingError, "user_ids", users):
        popularity.recommend(users)  # type: ignore[arg-type]


def test_no_users_no_answers(popularity: Recommender) -> None:
    assert popularity.recommend([]) == []
    assert popularity.recommend_for([]) == []


@pytest.mark.parametrize(
    "container", [tuple, np.array, pa.array, iter, lambda u: pa.chunked_array([u])]
)
def test_ids_come_in_any_container(popularity: Recommender, container: object) -> None:
    users = trained_users(popularity)[:3]
    answers = popularity.recommend(container(users), k=2)  # type: ignore[operator]
    assert answers == popularity.recommend(users, k=2)


def test_text_ids_that_look_like_integers_stay_text(text: Recommender) -> None:
    user = text.run.users.ids()[0]
    assert isinstance(user, str)
    (answer,) = text.recommend([user], k=3)
    assert answer.id == user
    assert all(isinstance(item_id, str) for item_id in answer.item_ids)
    assert answer.items[0].title is None
    with raises(UnknownIdError, user.removeprefix("00"), user):
        text.recommend([user.removeprefix("00")])


def test_candidates_restrict_the_list(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    (everything,) = personal.recommend([user], k=10_000)
    for candidates in (everything.item_ids[5:8], everything.item_ids[::2]):
        (answer,) = personal.recommend([user], k=3, candidates=candidates[::-1])
        assert answer.item_ids == candidates[:3]
        assert answer.reason is None


def test_few_candidates_tie_in_the_order_of_the_catalogue(popularity: Recommender) -> None:
    user = trained_users(popularity)[0]
    order = [item for item in popularity_order(popularity) if item not in HISTORIES[user]]
    tied = order[-4:]
    (answer,) = popularity.recommend([user], k=3, candidates={*tied})
    assert answer.item_ids == tied[:3]


def test_candidates_that_training_never_saw_are_named(popularity: Recommender) -> None:
    user = trained_users(popularity)[0]
    known = [item for item in popularity_order(popularity) if item not in HISTORIES[user]][:2]
    unseen = unseen_item(popularity)
    (answer,) = popularity.recommend([user], k=2, candidates=[*known, "new", unseen])
    assert answer.item_ids == known
    says(answer.reason, 2, 4, "candidates", f"'new', {unseen}")

    (answer,) = popularity.recommend([user], k=2, candidates=["new"])
    assert answer.items == []
    says(answer.reason, 0, 2, 0, 1, 1, "candidates", "new", "0, 1, 2")


def test_excluded_items_are_left_out(personal: Recommender) -> None:
    user = trained_users(personal)[0]
    (everything,) = personal.recommend([user], k=10_000)
    (answer,) = personal.recommend([user], k=5, exclude=everything.item_ids[:2])
    assert answer.item_ids == everything.item_ids[2:7]
    assert answer.reason is None


def test_exclude_overrides_candidates(popularity: Recommender) -> None:
    user = trained_users(popularity)[0]
    order = [item for item in popularity_order(popularity) if item not in HISTORIES[user]]
    (answer,) = popularity.recommend(
        [user], k=3, candidates=order[:3], exclude=[order[0], "unknown"]
    )
    assert answer.item_ids == order[1:3]
    says(answer.reason, 2, 3, 2, 1, 2, "exclude", "unknown")


def test_a_recommender_needs_no_run(personal: Recommender) -> None:
    users, items, histories = personal.run.users, personal.run.items, personal.run.histories
    bare = Recommender(personal.model, users, items, histories)
    everyone = users.ids()
    assert bare.recommend(everyone, k=5) == personal.recommend(everyone, k=5)


def test_a_run_and_its_path_open_the_same(popularity: Recommender) -> None:
    user = trained_users(popularity)[:1]
    for run in (popularity.run, popularity.run.path, str(popularity.run.path)):
        assert load(run, "cpu").recommend(user) == popularity.recommend(user)


def test_more_lists_than_fit_are_refused_beforehand(
    popularity: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.recommend.top_k.ALWAYS_FREE", 0)
    monkeypatch.setattr("foretaste.recommend.top_k.free_bytes", lambda: 3 * 5 * 12 - 1)
    users = trained_users(popularity)[:3]
    assert len(popularity.recommend(users[:2], k=5)) == 2
    with raises(UnsupportedError, 3, 5):
        popularity.recommend(users, k=5)


@pytest.fixture(scope="module")
def spawned() -> Iterator[Pool]:
    """A process that is spawned, which imports everything."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.mark.parametrize("has_answered", [False, True])
def test_a_pickled_recommender_answers_without_the_directory(
    personal: Recommender, tmp_path: Path, spawned: Pool, has_answered: bool
) -> None:
    assert personal.run is not None
    path = shutil.copytree(personal.run.path, tmp_path / "run")
    recommender, users = load(path, "cpu"), trained_users(personal)[:3]
    rules = tmp_path / "rules.toml"
    rules.write_text('odd = "item_id % 2 = 1"')
    recommender.read_rules(rules)
    if has_answered:
        recommender.recommend(users)
    content = pickle.dumps(recommender)
    shutil.rmtree(path)
    again = pickle.loads(content)
    expected = personal.recommend(users, where="item_id % 2 = 1")
    assert again.recommend(users) == personal.recommend(users)
    for options in ({"rules": ["odd"]}, {"where": "item_id % 2 = 1"}):
        found = again.recommend(users, **options)
        assert [one.item_ids for one in found] == [one.item_ids for one in expected]
    assert spawned.apply(again.recommend, (users,)) == again.recommend(users)


def test_a_link_that_moves_after_a_run_was_opened_changes_nothing(
    popularity: Recommender, personal: Recommender, tmp_path: Path
) -> None:
    assert popularity.run is not None
    assert personal.run is not None
    link, users = tmp_path / "current", trained_users(popularity)[:2]
    link.symlink_to(popularity.run.path)
    recommender = load(link, "cpu")
    link.unlink()
    link.symlink_to(personal.run.path)
    assert recommender.recommend(users) == popularity.recommend(users)
    # A folder above it may be a link too.
    (tmp_path / "above").symlink_to(popularity.run.path.parent)
    recommender = load(tmp_path / "above" / popularity.run.path.name, "cpu")
    (tmp_path / "above").unlink()
    assert recommender.recommend(users) == popularity.recommend(users)


def test_a_mapping_is_no_list_of_ids(popularity: Recommender) -> None:
    users, counts = trained_users(popularity)[:1], {1: 5, 5: 2}
    for name, ask in (
        ("user_ids", lambda: popularity.recommend(counts)),
        ("exclude", lambda: popularity.recommend(users, exclude=counts)),
        ("candidates", lambda: popularity.recommend(users, candidates=counts)),
        ("each history", lambda: popularity.recommend_for([counts])),
        ("item_ids", lambda: popularity.similar_items(counts)),
    ):
        with raises(SettingError, name):
            ask()
    (answer,) = popularity.recommend_for({"anna": [1, 5]}, k=1)
    assert answer.id == "anna"

"""Splits worked out by hand; hashes by Python's own md5."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5

import pytest

from foretaste.data import Dataset
from foretaste.errors import InputError, SettingError
from tests.data.conftest import PrepareText
from tests.messages import Named, raises

Pairs = set[tuple[int | str, int | str]]

LAST_OUT = """user_id,item_id,timestamp
1,10,100
1,13,400
1,12,300
1,11,200
2,12,500
2,10,500
2,11,500
2,13,100
3,13,100
3,10,900
"""


def hashed(*key: object) -> str:
    return md5(":".join(map(str, key)).encode()).hexdigest()


def pairs_of(dataset: Dataset, part: str) -> Pairs:
    """The (user_id, item_id) pairs of a part."""
    if part == "train":
        users, rows = list(range(dataset.manifest.num_train_users)), dataset.train
    else:
        heldout = dataset.heldout(part.split("_")[0])  # type: ignore[arg-type]
        users = heldout.user_index.tolist()
        rows = getattr(heldout, part.split("_")[1] if "_" in part else "target")
    user_ids, item_ids = dataset.users.ids(), dataset.items.ids()
    return {
        (user_ids[users[row]], item_ids[item])
        for row, item in zip(rows.row_index().tolist(), rows.item_index.tolist(), strict=True)
    }


def test_the_last_is_test_and_the_one_before_validation(prepared: PrepareText) -> None:
    dataset = prepared(LAST_OUT)
    tied = sorted([10, 11, 12], key=lambda item: hashed(0, 2, item))
    assert dataset.manifest.protocol == "leave-one-out"
    assert pairs_of(dataset, "test") == {(1, 13), (2, tied[0])}
    assert pairs_of(dataset, "validation") == {(1, 12), (2, tied[1])}
    assert pairs_of(dataset, "train") == {(1, 10), (1, 11), (2, 13), (2, tied[2]), (3, 13), (3, 10)}
    history = {(1, 10), (1, 11), (2, 13), (2, tied[2])}
    assert pairs_of(dataset, "validation_history") == history
    # The item before user 2's last item is in nobody's training.
    assert pairs_of(dataset, "test_history") == history | {(2, tied[1])}
    assert dataset.manifest.counts["num_users_with_fewer_than_3_items"] == 1


def test_for_test_validation_items_are_known(prepared: PrepareText) -> None:
    dataset = prepared(LAST_OUT)
    in_catalogue = set(dataset.items.ids()[: dataset.manifest.num_items])
    validation = {pair for pair in pairs_of(dataset, "validation") if pair[1] in in_catalogue}
    test, history = dataset.heldout("test", order=True), pairs_of(dataset, "validation_history")
    assert pairs_of(dataset, "test_history") == history | validation
    ids = dataset.users.ids(test.user_index)
    assert test.is_grown is not None
    assert test.is_grown.tolist() == [user in dict(validation) for user in ids]
    assert dataset.heldout("validation").is_grown is None
    # The items are in their places, after training and before the held-out items.
    assert test.history.position is not None
    assert test.target.position is not None
    for row in range(len(test)):
        of_target = test.target.position[row]
        assert (test.history[row : row + 1].position < of_target).all()  # type: ignore[operator]
    for split in ("validation", "test"):
        assert pairs_of(dataset, f"{split}_known") == pairs_of(dataset, f"{split}_history")


def test_ties_depend_on_the_seed(prepared: PrepareText) -> None:
    choices = set()
    for seed in range(8):
        dataset = prepared(LAST_OUT, f"seed{seed}", seed=seed)
        expected = min([10, 11, 12], key=lambda item: hashed(seed, 2, item))
        assert pairs_of(dataset, "test") == {(1, 13), (2, expected)}
        choices.add(expected)
    assert len(choices) > 1


def test_without_validation_the_one_before_trains(prepared: PrepareText) -> None:
    dataset = prepared(LAST_OUT, validation="none")
    assert not dataset.has_split("validation")
    assert pairs_of(dataset, "test") == pairs_of(prepared(LAST_OUT, "with"), "test")
    assert (1, 12) in pairs_of(dataset, "train")
    assert pairs_of(dataset, "test_known") == pairs_of(dataset, "test_history")


def test_without_times_the_last_is_chosen_by_hash(prepared: PrepareText) -> None:
    dataset = prepared("user_id,item_id\n1,10\n1,11\n1,12\n2,10\n", protocol="leave-one-out")
    first, second, third = sorted([10, 11, 12], key=lambda item: hashed(0, 1, item))
    assert dataset.manifest.protocol == "leave-one-out (random)"
    assert pairs_of(dataset, "test") == {(1, first)}
    assert pairs_of(dataset, "validation") == {(1, second)}
    assert pairs_of(dataset, "train") == {(1, third), (2, 10)}


def test_items_only_held_out_come_after_the_catalogue(prepared: PrepareText) -> None:
    text = "user_id,item_id,timestamp\n1,5,1\n1,3,2\n1,1,3\n2,5,1\n2,4,2\n2,2,3\n"
    dataset = prepared(text)
    assert dataset.items.ids() == [5, 1, 2, 3, 4]
    assert (dataset.manifest.num_items, dataset.manifest.num_all_items) == (1, 5)
    heldout = dataset.heldout("test")
    assert heldout.target.item_index.tolist() == [1, 2]
    assert heldout.target.num_items == 5
    assert heldout.history.num_items == heldout.known.num_items == 1
    assert dataset.manifest.counts["num_test_targets_unseen_in_training"] == 2


def test_a_repeated_pair_counts_as_its_earliest(prepared: PrepareText) -> None:
    text = "user_id,item_id,timestamp\n1,10,900\n1,11,200\n1,12,300\n1,10,100\n2,10,1\n"
    dataset = prepared(text)
    assert pairs_of(dataset, "test") == {(1, 12)}
    assert pairs_of(dataset, "train") == {(1, 10), (2, 10)}
    assert dataset.manifest.counts["num_repeated_pairs"] == 1


HELD_USERS = "user_id,item_id\n" + "".join(
    f"{user},{item}\n" for user in range(20) for item in range(user % 7 + 1)
)


def test_users_are_held_out_by_hash(prepared: PrepareText) -> None:
    dataset = prepared(HELD_USERS)
    # Users 0, 7 and 14 have one item only; a tenth of the other 17 is one user for each part.
    eligible = [user for user in range(20) if user % 7]
    test, validation, *_ = sorted(eligible, key=lambda user: hashed(0, user))
    trained = [user for user in range(20) if user not in (test, validation)]
    assert dataset.manifest.protocol == "held-out-users"
    assert dataset.users.ids() == trained + sorted([test, validation])
    parts = dict(zip(dataset.users.ids(), dataset.users.column("part"), strict=True))
    assert (parts[test], parts[validation]) == ("test", "validation")
    assert {parts[user] for user in trained} == {"train"}
    assert pairs_of(dataset, "train") == {
        (user, item) for user in trained for item in range(user % 7 + 1)
    }
    assert dataset.manifest.counts["num_users_with_fewer_than_2_items"] == 3


def test_a_fifth_of_their_items_is_the_target(prepared: PrepareText) -> None:
    text = "user_id,item_id\n" + "".join(
        f"{user},{item}\n" for user in range(1, 13) for item in range(user)
    )
    dataset = prepared(text, num_heldout_users=5)
    for split in ("validation", "test"):
        target, history = (
            pairs_of(dataset, f"{split}_target"),
            pairs_of(dataset, f"{split}_history"),
        )
        users = {user for user, _ in target}
        assert len(users) == 5
        for user in users:
            items = sorted(range(int(user)), key=lambda item: hashed(0, user, item))
            num_targets = max(1, len(items) // 5)
            assert {item for who, item in target if who == user} == set(items[:num_targets])
            catalogue = set(dataset.items.ids()[: dataset.manifest.num_items])
            kept = set(items[num_targets:]) & catalogue
            assert {item for who, item in history if who == user} == kept


def test_a_user_of_one_item_is_not_held_out(prepared: PrepareText) -> None:
    """The item would be the target or the history, and the other would be missing."""
    rows = "".join(f"{user},{item}\n" for user in range(4) for item in range(3))
    alone = "".join(f"{user},{user % 3}\n" for user in range(4, 34))
    dataset = prepared(f"user_id,item_id\n{rows}{alone}", num_heldout_users=1)
    assert dataset.manifest.protocol == "held-out-users"
    held_out = set(dataset.users.ids()[dataset.manifest.num_train_users :])
    assert len(held_out) == 2
    assert held_out < set(range(4))


def test_held_out_users_without_validation_keep_the_test_users(prepared: PrepareText) -> None:
    with_validation = prepared(HELD_USERS, "with")
    without = prepared(HELD_USERS, "without", validation="none")
    assert pairs_of(with_validation, "test_target") == pairs_of(without, "test_target")
    assert without.manifest.num_train_users == with_validation.manifest.num_train_users + 1


TEMPORAL = "user_id,item_id,timestamp\n" + "".join(
    f"{n % 4},{n},{1000 + n - n % 2}\n" for n in range(30)
)


def test_time_is_cut_by_share_of_interactions(prepared: PrepareText) -> None:
    dataset = prepared(TEMPORAL, protocol="temporal")
    # Times tie in pairs: 28-29 and 24-25 are whole, and the hash splits 26-27.
    first, second = sorted([26, 27], key=lambda n: hashed(0, n % 4, n))
    test, validation = {28, 29, first}, {second, 24, 25}
    assert pairs_of(dataset, "test") == {(n % 4, n) for n in test}
    assert pairs_of(dataset, "validation") == {(n % 4, n) for n in validation}
    assert pairs_of(dataset, "train") == {(n % 4, n) for n in range(24)}


def test_users_that_come_after_the_cut_follow_the_others(prepared: PrepareText) -> None:
    rows = "".join(f"{100 - n // 5},{n % 5},{n}\n" for n in range(100))
    dataset = prepared("user_id,item_id,timestamp\n" + rows, protocol="temporal")
    assert dataset.users.ids() == [*range(85, 101), 81, 82, 83, 84]
    assert dataset.users.column("part")[16:] == ["test", "test", "validation", "validation"]
    heldout = dataset.heldout("test")
    assert heldout.user_index.tolist() == [16, 17]
    assert heldout.history.lengths().tolist() == [0, 0]
    assert heldout.target.lengths().tolist() == [5, 5]


def test_equal_keys_of_different_users_have_an_order(prepared: PrepareText) -> None:
    """Users a:b and a have items c and b:c, whose hashed texts are equal."""
    others = [f"u{number},x,1" for number in range(9)]
    for name, tied in (("one", ["a,b:c,2", "a:b,c,2"]), ("other", ["a:b,c,2", "a,b:c,2"])):
        text = "\n".join(["user_id,item_id,time", *others, *tied, ""])
        dataset = prepared(text, name, protocol="temporal", validation="none")
        heldout = dataset.heldout("test")
        assert dataset.users.ids(heldout.user_index) == ["a"]


def test_none_trains_on_everything(prepared: PrepareText) -> None:
    dataset = prepared(LAST_OUT, protocol="none")
    assert dataset.train.num_interactions == 10
    assert not dataset.has_split("validation")
    assert not dataset.has_split("test")
    assert set(dataset.manifest.parts) == {"train.parquet", "users.parquet", "items.parquet"}


@pytest.mark.parametrize(
    ("text", "settings", "error", "named"),
    [
        (LAST_OUT.replace("timestamp", "when"), {"protocol": "temporal"}, SettingError,
         ("temporal", "no time column")),
        (LAST_OUT.replace("timestamp", "user_time_rank"), {"protocol": "temporal"}, SettingError,
         ("temporal", "user_time_rank")),
        (LAST_OUT, {"num_heldout_users": 2}, SettingError, ("num_heldout_users", "leave-one-out")),
        (LAST_OUT, {"min_rating": 4}, SettingError, ("min_rating",)),
        (HELD_USERS, {"num_heldout_users": 9}, SettingError,
         (9, 2, 17)),
        ("user_id,item_id,time\n1,1,1\n1,2,1\n2,1,1\n", {}, InputError,
         ("leave-one-out", 3, 2)),
        ("user_id,item_id,time\n1,1,1\n2,1,1\n1,1,2\n", {}, InputError,
         (2, "user_id", "--protocol none")),
        ("order,item_id\n1,1\n2,1\n", {"user_column": "order"}, InputError,
         (2, "order", "--user-column")),
        ("user_id,item_id\n1,1\n1,2\n2,1\n2,2\n", {}, SettingError, (1, 2, 2)),
        ("user_id,item_id,time\n1,1,7\n1,2,8\n1,3,9\n", {"protocol": "temporal"}, InputError,
         ("temporal", 3, 1)),
    ],
)  # fmt: skip
def test_inputs_that_the_protocol_cannot_split(
    prepared: PrepareText,
    text: str,
    settings: dict[str, object],
    error: type[Exception],
    named: Named,
) -> None:
    with raises(error, *named):
        prepared(text, **settings)


def timed(time: Callable[[int, int], object]) -> str:
    """Rows of 40 users with ten items each; user and item decide the time."""
    pairs = [(user, item) for user in range(40) for item in range(10)]
    return "user_id,item_id,time\n" + "".join(
        f"{user},{item},{time(user, item)}\n" for user, item in pairs
    )


@pytest.mark.parametrize(
    ("time", "named"),
    [
        (lambda user, item: 0, ("all times are one", 0)),
        (lambda user, item: "2024-05-01", ("2024-05-01",)),
        (lambda user, item: item, (40, 40)),
        (lambda user, item: item + 1, (40, 40)),
        (lambda user, item: item + (user % 2), (40, 40)),
        (lambda user, item: item + (5 if user < 2 else 1), (38, 40)),
        (lambda user, item: item + (5 if user < 3 else 1), None),
        (lambda user, item: 1_600_000_000 + item, None),
        (lambda user, item: 40 * item + user, None),
    ],
)
def test_a_cut_in_time_needs_times_that_users_share(
    prepared: PrepareText, time: Callable[[int, int], object], named: Named | None
) -> None:
    if named is None:
        prepared(timed(time), protocol="temporal")
        return
    with raises(SettingError, "temporal", "time", *named):
        prepared(timed(time), protocol="temporal")
    assert prepared(timed(time)).manifest.protocol == "leave-one-out"


@pytest.mark.parametrize(
    ("time", "num_tied", "label"),
    [
        (lambda user, item: 20 * user + item, 0, None),
        (lambda user, item: 20 * user + min(item, 8 if user < 4 else 9), 4, None),
        (lambda user, item: 20 * user + min(item, 8 if user < 5 else 9), 5, "12%"),
        (lambda user, item: f"2024-05-{20 + item // 2}", 40, "100%"),
        (lambda user, item: user, 40, "100%"),  # one time for each user
        (lambda user, item: 0, 40, "100%"),
        # the two before the last one
        (lambda user, item: 20 * user + (item if item > 8 else min(item, 7)), 0, None),
    ],
)
@pytest.mark.parametrize("validation", ["hold-out", "none"])
def test_the_printed_protocol_says_if_ties_decide(
    prepared: PrepareText,
    time: Callable[[int, int], object],
    num_tied: int,
    label: str | None,
    validation: str,
) -> None:
    manifest = prepared(timed(time), validation=validation).manifest
    assert manifest.protocol == "leave-one-out"
    assert manifest.counts.get("num_test_users_with_a_tie", 0) == num_tied
    assert manifest.has_ties == (label is not None)
    printed = "leave-one-out"
    if label is not None:
        printed += f" (ties by hash): {label} of the users have several items at their last time"
    assert dict(manifest.choices())["protocol"].removesuffix(", no validation part") == printed


@pytest.mark.parametrize(
    ("time", "validation", "num_tied"),
    [
        (lambda user, item: 40 * item + user, "hold-out", None),
        (lambda user, item: 10 + item, "hold-out", None),  # cuts between two times
        (lambda user, item: 10 + item // 2, "hold-out", 80),  # the cut of the test part alone
        (lambda user, item: 10 + item // 3, "hold-out", 120),
        # 60 at each cut
        (lambda user, item: 10 + (40 * item + user + 30) // 60, "hold-out", 120),
        (lambda user, item: 10 + item // 2, "none", 80),
    ],
)
def test_ties_at_the_cuts_in_time_are_counted(
    prepared: PrepareText,
    time: Callable[[int, int], object],
    validation: str,
    num_tied: int | None,
) -> None:
    dataset = prepared(timed(time), protocol="temporal", validation=validation)
    assert dataset.manifest.counts.get("num_interactions_tied_at_the_cuts") == num_tied

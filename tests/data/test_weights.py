"""Weights of interactions: their computation, their place in the files, and refused weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from foretaste.data import Dataset, GivenSplit, PrepareConfig, open_dataset, prepare
from foretaste.errors import InputError, SettingError
from foretaste.runs.verification import verify
from tests.data.conftest import PrepareText, WriteFile, refuse
from tests.messages import Named, raises, says

EVENTS = """user,item,plays,event,time
a,x,3,view,2024-01-01
a,x,2,purchase,2024-01-31
a,y,1,view,2024-01-02
b,x,1,cart,2024-01-01
b,y,7,view,2024-01-31
b,z,4,,2024-01-05
"""


def weights_of(dataset: Dataset) -> dict[tuple[str, str], float]:
    """The stored weights, by user and item."""
    table = pq.read_table(dataset.path / "train.parquet")
    assert table.schema.field("weight").type == pa.float32()
    users = dataset.users.ids(table["user_index"].to_numpy())
    items = dataset.items.ids(table["item_index"].to_numpy())
    return dict(zip(zip(users, items, strict=True), table["weight"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weight_column": "plays"}, {"ax": 5, "ay": 1, "bx": 1, "by": 7, "bz": 4}),
        (
            {"weight_column": "plays", "weight_scale": "log"},
            {"ax": math.log2(6), "ay": 1, "bx": 1, "by": 3, "bz": math.log2(5)},
        ),
        (
            {"event_column": "event", "events": ["purchase=4", "cart=2", "view"]},
            {"ax": 5, "ay": 1, "bx": 2, "by": 1},
        ),
        ({"half_life": "30d"}, {"ax": 1.5, "ay": 2 ** (-29 / 30), "bx": 0.5, "by": 1}),
        ({"weight_scale": "linear"}, {"ax": 2, "ay": 1, "bx": 1, "by": 1, "bz": 1}),
        (
            {"weight_column": "plays", "half_life": "720h", "event_column": "event",
             "events": ["purchase=4", "view=0.5"]},
            {"ax": 3 * 0.5 * 0.5 + 2 * 4, "ay": 0.5 * 2 ** (-29 / 30), "by": 3.5},
        ),
    ],
)  # fmt: skip
def test_rows_of_a_pair_add_up(
    prepared: PrepareText, settings: dict[str, Any], expected: dict[str, float]
) -> None:
    found = weights_of(dataset := prepared(EVENTS, protocol="none", **settings))
    for pair, weight in expected.items():
        assert found[pair[0], pair[1]] == pytest.approx(weight, abs=2**-19)
    assert dataset.manifest.mean_weight == pytest.approx(np.mean([*found.values()]))
    shares = dataset.train_weights(range(2))
    assert shares is not None
    assert shares.mean() == pytest.approx(1.0)
    assert "weights" in dataset.manifest.notes


def test_events_alone_keep_rows_and_give_no_weights(prepared: PrepareText) -> None:
    dataset = prepared(EVENTS, protocol="none", event_column="event", events=["purchase", "cart"])
    assert dataset.manifest.counts["num_rows_of_other_events"] == 4
    assert dataset.manifest.num_interactions == 2
    assert dataset.manifest.mean_weight is None
    assert dataset.train_weights(range(2)) is None
    assert "4 of other events" in dataset.manifest.rows()


def test_without_weights_nothing_changes(prepared: PrepareText) -> None:
    """The digest is older than weights and orders, and so is the manifest."""
    lines = [line.rsplit(",", 1)[0] for line in EVENTS.splitlines()]
    dataset = prepared("\n".join(lines) + "\n", protocol="leave-one-out")
    manifest = (dataset.path / "manifest.json").read_text()
    assert dataset.manifest.digest.startswith("9adb168054808544")
    assert not any(word in manifest for word in ("mean_weight", "half_life", "weight_scale"))
    assert pq.read_schema(dataset.path / "train.parquet").names == ["user_index", "item_index"]
    assert PrepareConfig().content().keys().isdisjoint({"weight_column", "events", "half_life"})


def test_pairs_are_the_same_with_weights_and_without(prepared: PrepareText) -> None:
    rows = "".join(f"u{n % 17},i{n * n % 23},{n % 5 + 1},{n}\n" for n in range(400))
    text = f"user,item,plays,time\n{rows}"
    for protocol in ("leave-one-out", "held-out-users", "temporal", "none"):
        plain = prepared(text, f"plain-{protocol}", protocol=protocol)
        weighted = prepared(text, f"weighted-{protocol}", protocol=protocol, weight_column="plays")
        assert np.array_equal(plain.train.item_index, weighted.train.item_index)
        for name, part in plain.manifest.parts.items():
            is_same = weighted.manifest.parts[name].content_digest == part.content_digest
            assert is_same == (name != "train.parquet")
        assert plain.manifest.digest != weighted.manifest.digest


def test_the_order_of_rows_and_threads_change_no_byte(
    write: WriteFile, tmp_path: Path, rng: np.random.Generator
) -> None:
    lines = [
        f"u{n % 29},i{n % 7},{value!r},{1_600_000_000 + n}"
        for n, value in enumerate(rng.lognormal(0, 3, 3000).tolist())
    ]
    found = []
    for threads in (1, 2):
        rng.shuffle(lines)
        source = write("user,item,hours,time\n" + "\n".join(lines), f"{threads}.csv")
        settings = {"half_life": "1h", "weight_scale": "log", "weight_column": "hours"}
        dataset = prepare(
            source, tmp_path / f"{threads}", protocol="none", threads=threads, **settings
        )
        found.append(dataset.manifest.parts["train.parquet"].sha256)
    assert found[0] == found[1]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_weight_keeps_its_digits_beside_one_a_million_million_times_as_large(
    prepared: PrepareText, scale: str
) -> None:
    plays = [1e-9, 1.234567e-7, 3e-3, 12_345_679.0, 1e8]
    rows = "".join(f"a,{item},{value!r}\n" for item, value in enumerate(plays))
    dataset = prepared(
        f"user,item,plays\n{rows}", protocol="none", weight_column="plays", weight_scale=scale
    )
    expected = plays if scale == "linear" else [math.log1p(value) / math.log(2) for value in plays]
    assert [*weights_of(dataset).values()] == pytest.approx(expected, rel=1e-6)
    assert dataset.manifest.mean_weight == pytest.approx(np.mean(expected), rel=1e-6)
    assert "small weights" not in dataset.manifest.notes


def test_a_weight_falls_for_sixty_half_lives(prepared: PrepareText) -> None:
    days = [0, 1, 20, 45.25, 59, 61, 5000]
    rows = "".join(f"a,{item},{int(2e9 - 86_400 * day)}\n" for item, day in enumerate(days))
    dataset = prepared(f"user,item,time\n{rows}", protocol="none", half_life="1d")
    expected = [2.0**-day for day in days[:5]] + [2.0**-60, 2.0**-60]
    assert [*weights_of(dataset).values()] == pytest.approx(expected, rel=1e-6)
    note = "2 rows below 8.67e-19, 2^-60 of the largest, count as 8.67e-19"
    assert dataset.manifest.notes["small weights"] == note


def test_rows_of_the_future_weigh_nothing(prepared: PrepareText) -> None:
    """A training pair repeats in the time of the test part."""
    rows = "".join(f"u{n % 5},i{n},1,{1_600_000_000 + n}\n" for n in range(40))
    again = "u0,i0,100,1600000039\n"
    dataset = prepared(
        f"user,item,plays,time\n{rows}{again}", protocol="temporal", weight_column="plays"
    )
    assert weights_of(dataset)["u0", "i0"] == 1.0


@pytest.mark.parametrize("protocol", ["none", "held-out-users"])
def test_later_rows_of_a_pair_count_if_time_does_not_split(protocol: str, tmp_path: Path) -> None:
    day, begin = 86_400, 1_600_000_000
    users = [user for user in range(9) for _ in range(3)]
    table = pa.table(
        {
            "user_id": users,
            "item_id": [0, 1, 1] * 9,
            "timestamp": [begin, begin, begin + 30 * day] * 9,
        }
    )
    dataset = prepare(table, tmp_path / "it", protocol=protocol, half_life="30d")
    assert {round(one, 5) for one in weights_of(dataset).values()} == {0.5, 1.5}


def test_a_given_split_weighs_rows_of_its_training_part(tmp_path: Path) -> None:
    def part(*rows: tuple[int, int, int]) -> pa.Table:
        users, items, plays = zip(*rows, strict=True)
        return pa.table({"user_id": users, "item_id": items, "plays": plays})

    split = GivenSplit(train=part((1, 1, 2), (1, 2, 3), (2, 1, 4)), test=part((1, 1, 9), (2, 2, 1)))
    dataset = prepare(split, tmp_path / "given", weight_column="plays")
    assert list(weights_of(dataset).values()) == [2.0, 3.0, 4.0]
    refuse(split, "half_life", error=SettingError, half_life="9d")


def test_values_of_a_matrix_are_weights_if_asked_for(tmp_path: Path) -> None:
    matrix = scipy.sparse.coo_array(([2.5, 1.0, 4.0], ([0, 0, 1], [0, 1, 0])), shape=(2, 2))
    dataset = prepare(matrix, tmp_path / "m", protocol="none", weight_column="rating")
    assert list(weights_of(dataset).values()) == [2.5, 1.0, 4.0]
    assert prepare(matrix, tmp_path / "p", protocol="none").manifest.mean_weight is None


def test_ratings_may_be_weights_and_a_filter_too(prepared: PrepareText) -> None:
    text = "user,item,rating\n1,1,5\n1,2,0\n2,1,3\n2,2,4\n"
    with raises(InputError, 0, 0):
        prepared(text, weight_column="rating", protocol="none")
    dataset = prepared(text, "out2", weight_column="rating", min_rating=1, protocol="none")
    assert list(weights_of(dataset).values()) == [5.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (
            "-2",
            (3, "-2", 0, "plays", 1, "--rating-column"),
        ),
        ("2e9", (3, "2e9", "1,000,000,000")),
        ("", (3, "plays", 1)),
        ("nan", (3, "nan")),
        ("many", (3, "many")),
    ],
)
def test_a_weight_that_is_none_is_refused(prepared: PrepareText, value: str, named: Named) -> None:
    with raises(InputError, *named):
        prepared(f"user,item,plays\n1,1,3\n1,2,{value}\n", weight_column="plays", protocol="none")


@pytest.mark.parametrize(
    ("hours", "least"),
    [
        (["0.3", "0.7", "0.9", "0"], "0.3"),
        (["3", "-2", "0", "12.25"], "3"),
        (["0", "1e-9"], "1e-09"),
    ],
)
def test_the_advice_on_small_weights_leaves_out_these_alone(
    prepared: PrepareText, hours: list[str], least: str
) -> None:
    text = "user,item,hours\n" + "".join(f"1,{n},{one}\n" for n, one in enumerate(hours))
    with raises(InputError, f"--rating-column hours --min-rating {least}"):
        prepared(text, weight_column="hours", protocol="none")
    settings = {"rating_column": "hours", "min_rating": float(least)}
    kept = prepared(text, "kept", weight_column="hours", protocol="none", **settings)
    assert kept.manifest.num_interactions == sum(float(one) > 0 for one in hours)


def test_weights_that_are_all_0_or_large_by_their_events(prepared: PrepareText) -> None:
    settings: dict[str, Any] = {"weight_column": "plays", "protocol": "none"}
    with raises(InputError, 2, 0):
        prepared("user,item,plays\n1,1,0\n1,2,0\n", **settings)
    settings |= {"event_column": "event", "events": ["buy=100"]}
    with raises(InputError, 3, "2e8", "1,000,000,000"):
        prepared("user,item,plays,event\n1,1,9,buy\n1,2,2e8,buy\n", **settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"events": ["view"]}, ("event_column",)),
        ({"event_column": "event"}, ("event_column", "--event")),
        ({"event_column": "event", "events": []}, ("events",)),
        ({"event_column": "event", "events": ["view=0"]}, ("events", "view=0")),
        ({"event_column": "event", "events": ["view=x"]}, (4, 2)),
        ({"event_column": "event", "events": ["view", "view=2"]}, ("different names of",)),
        ({"half_life": "90"}, ("half_life", 90)),
        ({"half_life": "0d"}, ("half_life", "0d")),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], named: Named) -> None:
    with raises(SettingError, *named):
        PrepareConfig(**settings)


def test_an_event_that_never_happened(prepared: PrepareText) -> None:
    with raises(InputError, "purchse", "event", "view"):
        prepared(EVENTS, event_column="event", events=["purchse=4", "view"])


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nothing", ("half_life",)),
        ("time_rank", ("half_life", "time_rank")),
        ("time", ("half_life", "time", 3, 4)),
    ],
)
def test_ages_need_times(prepared: PrepareText, name: str, named: Named) -> None:
    with raises(SettingError, *named):
        prepared(f"user,item,{name}\n1,1,3\n1,2,4\n", half_life="3d", protocol="none")


@pytest.mark.parametrize("beside", [False, True])
def test_ages_need_times_of_one_unit_in_each_source(
    write: WriteFile, tmp_path: Path, beside: bool
) -> None:
    """One event in milliseconds is named, also beside a file in milliseconds."""
    rows = "".join(f"{user},{user % 3},{1_600_000_000 + user}\n" for user in range(9))
    events = write(f"user,item,time\n{rows}1,2,1600000000001\n", "events.csv")
    others = write(
        "user,item,time\n" + "".join(f"{user},1,16000000000{user}0\n" for user in range(5, 95)),
        "others.csv",
    )
    with raises(InputError, "events.csv", 11, 1600000000001, "time", 1, 9):
        prepare(
            [others, events] if beside else events,
            tmp_path / "out",
            half_life="3d",
            protocol="none",
        )


@pytest.mark.parametrize(
    ("protocol", "num_odd", "num_rows"),
    [("none", 2, 3000), ("held-out-users", 1, 1800), ("leave-one-out", 1, 1800)],
)
def test_a_row_far_after_all_others_ages_no_other(
    prepared: PrepareText, protocol: str, num_odd: int, num_rows: int
) -> None:
    """Rows are dated 2099. Leave-one-out holds out two rows of a user, so the test adds two."""
    rows = "".join(f"v,i{n},1600000000\n" for n in range(3))
    rows += "".join(f"u{n % 30},i{n // 30},{1_600_000_000 + 999 * n}\n" for n in range(num_rows))
    num_odd += 2 * (protocol == "leave-one-out")
    odd = "".join(f"v,odd{n},{4_070_908_800 + 10**8 * n}\n" for n in range(num_odd))
    text = f"user,item,time\n{rows}"
    settings = {"protocol": protocol, "half_life": "1d"}
    dataset = prepared(text + odd, "odd", **settings)
    weights = weights_of(dataset)
    expected = weights_of(prepared(text, "plain", **settings))
    found = {pair: weight for pair, weight in weights.items() if pair[1].startswith("odd")}
    assert set(found.values()) == {1.0}
    assert len(found) == num_odd - 2 * (protocol == "leave-one-out")
    assert {pair: weights[pair] for pair in expected} == expected
    assert max(expected.values()) == 1.0
    place = ("4070908800", "2099-01-01", "odd.csv", num_rows + 5)
    says(dataset.manifest.notes["times after a gap"], len(found), 10, *place)


@pytest.mark.parametrize(
    ("num_rows", "after", "is_gap"),
    [(998, 11, False), (999, 11, True), (999, 10, False), (999, 10.01, True)],
)
def test_a_gap_is_of_ten_half_lives_and_has_a_row_in_a_thousand_after_it(
    prepared: PrepareText, num_rows: int, after: float, is_gap: bool
) -> None:
    rows = "".join(f"u{n % 30},i{n},1600000000\n" for n in range(num_rows))
    text = f"user,item,time\n{rows}u0,odd,{1_600_000_000 + int(after * 86_400)}\n"
    dataset = prepared(text, protocol="none", half_life="1d")
    assert ("times after a gap" in dataset.manifest.notes) == is_gap
    assert (set(weights_of(dataset).values()) == {1.0}) == is_gap


def test_a_changed_weight_is_found(prepared: PrepareText) -> None:
    dataset = prepared(EVENTS, protocol="none", weight_column="plays")
    assert verify(dataset.path) == []
    file = dataset.path / "train.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(2, "weight", pa.array([9.0] * len(table), pa.float32())), file)
    assert verify(dataset.path)[0].startswith(str(file))


def test_the_same_settings_find_the_same_dataset(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write(EVENTS)
    places = {
        prepare(source, protocol="none", **settings).path
        for settings in ({}, {"weight_column": "plays"}, {"half_life": "9d"})
        for _ in range(2)
    }
    assert len(places) == 3
    assert all(open_dataset(place).manifest.num_interactions == 5 for place in places)

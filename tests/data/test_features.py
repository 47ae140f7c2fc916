"""Features of items, and new items: order and values, compared with a short version in pandas."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretaste._util.signed_json import signed_text
from foretaste.data import Dataset, Features, prepare
from foretaste.errors import InputError, SettingError
from tests.data.conftest import WriteFile, refuse
from tests.messages import Named, raises, says

pytestmark = pytest.mark.filterwarnings("ignore::foretaste.errors.DataWarning")

PLAYS = pd.DataFrame({"user_id": [1, 1, 1, 2, 2, 2, 3, 3, 3], "item_id": [*"abcacdbce"]})
PLAYS["time"] = range(9)
ITEMS = pd.DataFrame(
    {
        "item_id": [*"abcdexyz"],
        "kind": ["w", "w", "b", "b", None, " w ", "q", None],
        "tags": [["1", "2"], [], None, ["2"], ["3"], [" 1"], ["7"], []],
    }
)
ASKED: dict[str, Any] = {"items": ITEMS, "features": ["kind", "tags"]}


def items_of(features: Features | None, dataset: Dataset) -> dict[tuple[str, str], list[Any]]:
    """The ids of the items with each value."""
    assert features is not None
    rows, ids = features.histories, dataset.items.ids()
    parts = np.split(rows.item_index, rows.offsets[1:-1])
    return {
        name: [ids[index] for index in part]
        for name, part in zip(features.names, parts, strict=True)
    }


def test_items_with_a_value_follow_the_items_of_training(tmp_path: Path) -> None:
    """Training has a and b; c and d are held out, x is new; e and y share no value."""
    dataset = prepare(PLAYS, tmp_path / "out", **ASKED)
    assert dataset.items.ids() == ["a", "b", "c", "d", "x", "e"]
    manifest = dataset.manifest
    assert (manifest.num_items, manifest.num_listed_items, manifest.num_all_items) == (2, 5, 6)
    assert items_of(dataset.features, dataset) == {
        ("kind", "b"): ["c", "d"],
        ("kind", "w"): ["a", "b", "x"],
        ("tags", "1"): ["a", "x"],
        ("tags", "2"): ["a", "d"],
    }
    assert dataset.features is not None
    assert [*dataset.features.as_lists(6)] == ["kind", "tags"]
    assert dataset.train.num_items == dataset.heldout("test").history.num_items == 5
    assert dataset.all_interactions().num_items == 6
    assert list(dataset.heldout("test").history[2:].item_index) == [1, 2]
    assert manifest.counts["num_test_targets_unseen_in_training"] == 3
    assert manifest.counts["num_test_targets_unseen_without_feature"] == 1
    notes = manifest.notes
    says(notes["feature 'kind'"], 3, 2, 1)
    says(notes["feature 'tags'"], 4, 2, 2)
    says(notes["new items"], 1, "items table", 2)


def expected(
    trained: set[str], kept: set[str], source: set[str], rows: pd.DataFrame
) -> tuple[list[str], dict[tuple[str, str], list[str]]]:
    """The order of the items and the items of each value, by the ids of training, of all parts and
    of the source, and rows of ``item_id``, ``column`` and ``value``."""
    rows = rows.assign(value=rows["value"].str.strip(" \t\r\n\xa0"))
    rows = rows[rows["value"].fillna("") != ""].drop_duplicates()
    listable = kept | (set(rows["item_id"]) - source)
    rows = rows[rows["item_id"].isin(listable)]
    size = rows.groupby(["column", "value"])["item_id"].transform("size")
    rows = rows[(size >= 2) & (size <= len(listable) / 2)]
    listed = set(rows["item_id"]) - trained
    order = [*sorted(trained), *sorted(listed), *sorted(kept - trained - listed)]
    rows = rows.sort_values("item_id", key=lambda ids: ids.map(order.index))
    return order, rows.groupby(["column", "value"])["item_id"].agg(list).to_dict()


described = st.tuples(
    st.sampled_from("abcdefghij"),
    st.sampled_from(["w", "w ", "W", "\u00a0x", "", None]),
    st.lists(st.sampled_from(["1", "2", " 2", ""]), max_size=3),
)


@settings(max_examples=25)
@given(
    plays=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcdefgh")), min_size=12),
    items=st.lists(described, min_size=4, max_size=24),
    least=st.integers(1, 2),
)
def test_pandas_gives_the_same_order_and_values(
    plays: list[tuple[int, str]], items: list[tuple[str, str | None, list[str]]], least: int
) -> None:
    """An item may have several rows, and items removed by a filter are no new items."""
    table = pd.DataFrame(plays, columns=["user_id", "item_id"]).assign(
        time=1_700_000_000 + np.arange(len(plays))
    )
    frame = pd.DataFrame(items, columns=["item_id", "kind", "tags"])
    error = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            dataset = prepare(
                table, Path(folder) / "out", protocol="temporal", min_item_users=least,
                items=frame, features=["kind", "tags"],
            )  # fmt: skip
        except InputError as refused:
            error = str(refused)
        if error:
            assert re.search("no two items share|every value|none of the items|few|filt", error)
            return
        ids = dataset.items.ids()
        trained, everything = (
            {ids[index] for index in rows.item_index}
            for rows in (dataset.train, dataset.all_interactions())
        )
        rows = pd.concat(
            frame[["item_id"]].assign(column=name, value=frame[name]).explode("value")
            for name in ("kind", "tags")
        )
        order, values = expected(trained, everything, set(table["item_id"]), rows)
        assert ids == order
        assert items_of(dataset.features, dataset) == values
        manifest = dataset.manifest
        assert manifest.num_items == len(trained)
        with_value = {item for found in values.values() for item in found}
        assert manifest.num_listed_items == len(trained | with_value)


def values_of(items: Any, *names: str, folder: Path, **more: Any) -> dict[Any, list[Any]]:
    """The items of each value, of a training of items 1 to 6."""
    plays = pd.DataFrame({"user_id": [1, 2] * 3, "item_id": range(1, 7)})
    settings = {"protocol": "none", "overwrite": True, "features": names} | more
    dataset = prepare(plays, folder / "out", items=items, **settings)
    return items_of(dataset.features, dataset)


def test_columns_of_types(tmp_path: Path) -> None:
    """Integers that gaps turned into floats, booleans, categories, lists of integers; each column
    has a missing value."""
    columns = {
        "whole": pd.Series([1.0, 1.0, None, 2.0, 2.0, 3.0]),
        "flag": pd.array([True, True, None, False, False, None], dtype="boolean"),
        "brand": pd.Categorical(["a", "a", None, "A", "A", "b"]),
        "decimal": pa.array([5, 5, None, 6, 7, 8], pa.decimal128(10, 2)),
        "many": pa.array([[1, 2], [2, 1, 2], None, [], [None], [3]], pa.list_(pa.int8())),
        "fixed": pa.array([["u", "v"], ["u", "w"], None, ["", "x"], [None, "x"], ["y", "z"]],
                          pa.list_(pa.string(), 2)),
    }  # fmt: skip
    frame = pd.DataFrame(
        {"item_id": range(1, 7)} | {name: columns[name] for name in ("whole", "flag", "brand")}
    )
    table = pa.Table.from_pandas(frame)
    for name in ("decimal", "many", "fixed"):
        table = table.append_column(name, columns[name])
    pq.write_table(table, tmp_path / "items.parquet")
    for source in (table, tmp_path / "items.parquet"):
        assert values_of(source, *columns, folder=tmp_path) == {
            ("whole", "1"): [1, 2], ("whole", "2"): [4, 5],
            ("flag", "false"): [4, 5], ("flag", "true"): [1, 2],
            ("brand", "A"): [4, 5], ("brand", "a"): [1, 2],
            ("decimal", "5"): [1, 2],
            ("many", "1"): [1, 2], ("many", "2"): [1, 2],
            ("fixed", "u"): [1, 2], ("fixed", "x"): [4, 5],
        }  # fmt: skip


def test_columns_of_text(write: WriteFile, tmp_path: Path) -> None:
    """Text is split at the sign after a name; numbers such as 2.0 are integers, 007 is not 7."""
    lines = ["1;A|B;1.0;007", "2;B | C;2.0;7", '3;"";;7', "4;|;2;", "5; A;3.0;007", "6;B;3.0;7"]
    items = write("\n".join(["item_id;tag|;size;code", *lines]), "items.csv")
    items.write_text(items.read_text().replace("tag|", "tag"))
    assert values_of(items, "tag|", "size", "code", folder=tmp_path) == {
        ("tag", "A"): [1, 5], ("tag", "B"): [1, 2, 6],
        ("size", "2"): [2, 4], ("size", "3"): [5, 6],
        ("code", "007"): [1, 5], ("code", "7"): [2, 3, 6],
    }  # fmt: skip
    items.write_text(items.read_text().replace("tag", "tag|"))
    assert ("tag|", "A|B") not in values_of(items, "code", folder=tmp_path)
    with raises(InputError, "tag|"):
        values_of(items, "tag|", folder=tmp_path)
    long = "x" * 1_100  # longer than an id may be
    items.write_text(f"item_id;tag\n1;{long}\n2;{long}\n3;{long}y\n4;'\n5;'")
    assert values_of(items, "tag", folder=tmp_path) == {("tag", long): [1, 2]}


def test_columns_of_json(write: WriteFile, tmp_path: Path) -> None:
    tags: list[Any] = [["a", "b"], ["b", 2], "a", 2, None, []]
    lines = [json.dumps({"item_id": n, "tag s": tag}) for n, tag in enumerate(tags, start=1)]
    items = write("\n".join(lines), "items.jsonl")
    assert values_of(items, "tag s", folder=tmp_path) == {
        ("tag s", "2"): [2, 4], ("tag s", "a"): [1, 3], ("tag s", "b"): [1, 2],
    }  # fmt: skip


def test_rows_and_spellings_of_an_item(tmp_path: Path) -> None:
    """An item has the values of all its rows, also of rows that spell its id in another Unicode
    form, which makes no new item; ids that are no integers do not join integers."""
    plays = pd.DataFrame({"user_id": [1, 2] * 3, "item_id": [*"abcd", "caf\u00e9", "f"]})
    items = pd.DataFrame({"item_id": ["a", "a", "cafe\u0301", "b", "a", "f"], "kind": [*"xyyzxx"]})
    dataset = prepare(plays, tmp_path / "out", protocol="none", items=items, features=["kind"])
    assert items_of(dataset.features, dataset) == {
        ("kind", "x"): ["a", "f"], ("kind", "y"): ["a", "caf\u00e9"],
    }  # fmt: skip
    assert "new items" not in dataset.manifest.notes
    plays["item_id"] = range(1, 7)
    items = pd.DataFrame(
        {"item_id": ["1", "2", "07", "7", "8"], "kind": ["x", "y", "x", "x", None]}
    )
    dataset = prepare(plays, tmp_path / "ids", protocol="none", items=items, features=["kind"])
    assert dataset.items.ids() == [1, 2, 3, 4, 5, 6, 7]
    says(dataset.manifest.notes["new items"], 1, "items table", 1)
    says(dataset.manifest.notes["ids of new items"], "07", 1, "--item-id-type text")


def test_values_of_most_items_are_left_out_and_named(tmp_path: Path) -> None:
    items = pd.DataFrame({"item_id": range(1, 7), "kind": [*"aabbcc"], "stock": [*"yyyynn"]})
    plays = pd.DataFrame({"user_id": [1, 2] * 3, "item_id": range(1, 7)})
    asked: dict[str, Any] = {"protocol": "none", "features": ["kind", "stock"]}
    dataset = prepare(plays, tmp_path / "out", items=items, **asked)
    says(dataset.manifest.notes["feature 'stock'"], 2, 2, 0, "y")
    assert ("stock", "n") in items_of(dataset.features, dataset)
    assert ("stock", "y") not in items_of(dataset.features, dataset)
    refuse(plays, protocol="none", items=items.assign(stock="y"), features=["stock"])  # fmt: skip


@pytest.mark.parametrize(
    ("features", "named", "error"),
    [
        (["knd"], ("knd", "--features", "kind"), InputError),
        (["item_id"], ("item_id",), SettingError),
        (["kind", "kind"], ("kind",), SettingError),
        (["tags|"], ("tags|", "tags"), SettingError),
        (["code"], ("code", "shared values"), InputError),
        (["day"], ("day", re.compile(r"timestamp\[\w+\]"), "text, integers"), InputError),
        (["rows"], ("rows", "text, integers"), InputError),
        ([], ("features", "''"), SettingError),
        (["price"], ("0.5", "price_band"), InputError),
    ],
)  # fmt: skip
def test_columns_that_are_refused(
    features: list[str], named: Named, error: type[InputError]
) -> None:
    items = ITEMS.assign(code=range(8), price=[0.5, 1.5] * 4)
    items = items.assign(day=pd.Timestamp("2024-01-01"), rows=[{"a": 1}] * 8)
    refuse(PLAYS, *named, error=error, items=items, features=features)


def test_features_need_a_file_of_items() -> None:
    refuse(PLAYS, "--items", error=SettingError, features=["a"])


def test_the_line_to_run_makes_bands(write: WriteFile, tmp_path: Path) -> None:
    """A price is refused in a file without types, and in a file with types."""
    text = "item_id,unit price\n" + "".join(f"{n},{n}.50\n" for n in range(1, 21))
    plays = pd.DataFrame({"user_id": [1, 2] * 10, "item_id": range(1, 21)})
    items = write(text, "products.csv")
    pq.write_table(pa.table({"item_id": range(1, 21), "unit price": np.arange(20) + 0.5}),
                   tmp_path / "products.parquet")  # fmt: skip
    for source in (items, tmp_path / "products.parquet"):
        asked: dict[str, Any] = {"protocol": "none", "items": source, "overwrite": True}
        with raises(InputError) as caught:
            prepare(plays, tmp_path / "out", features=["unit price"], **asked)
        line = str(caught.value).split("this makes one: ")[1]
        copied = tmp_path / "bands.csv"
        program = f"import duckdb; duckdb.sql('''COPY ({line}) TO '{copied}' ''')"
        subprocess.run([sys.executable, "-c", program], check=True)
        asked |= {"items": copied, "features": ["unit price_band"]}
        dataset = prepare(plays, tmp_path / "out", **asked)
        assert len(items_of(dataset.features, dataset)) == 10


def test_the_digest_holds_features_and_new_items(tmp_path: Path) -> None:
    """Data without features keep their bytes: an items file does not change them."""

    def digest(name: str, items: pd.DataFrame, **settings: Any) -> str:
        return prepare(PLAYS, tmp_path / name, items=items, **settings).manifest.digest

    plain = digest("plain", ITEMS)
    assert plain == digest("fewer", ITEMS[:5])
    digests = {
        plain,
        digest("all", ITEMS, features=["kind"]),
        digest("without-new", ITEMS[:5], features=["kind"]),
        digest("other", ITEMS.assign(kind=[*"wwwbbwwb"]), features=["kind"]),
        digest("tags", ITEMS, features=["tags"]),
    }
    assert len(digests) == 5
    text = (tmp_path / "plain" / "manifest.json").read_text()
    assert "feature" not in text
    assert "listed" not in text
    assert not list((tmp_path / "plain").glob("feature*"))


def newest(rows: pd.DataFrame, seed: int, *, is_by_time: bool) -> tuple[set[str], set[str]]:
    """The items of test and validation: the newest tenth by first time, and the next tenth."""
    first = rows.groupby("item_id")["time"].min() * is_by_time
    key = {item: hashlib.md5(f"{seed}:{item}".encode()).hexdigest() for item in first.index}
    order = sorted(first.index, key=lambda item: (-first[item], key[item]))
    size = max(1, len(order) // 10)
    return set(order[:size]), set(order[size : 2 * size])


@settings(max_examples=20)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 7), st.integers(10, 40), st.integers(0, 9)), min_size=30
    ),
    seed=st.integers(0, 3),
    times=st.sampled_from(["real", "ranks", "none"]),
)
def test_new_items_are_the_newest_with_all_their_interactions(
    rows: list[tuple[int, int, int]], seed: int, times: str
) -> None:
    frame = pd.DataFrame(rows, columns=["user_id", "item_id", "time"]).astype({"item_id": str})
    frame["time"] += 1_700_000_000
    if times == "ranks":
        frame["time"] = frame.groupby("user_id").cumcount()
    is_by_time = times == "real" and frame["time"].nunique() > 1
    items = pd.DataFrame({"item_id": map(str, range(10, 45)), "kind": [*"abcde?g"] * 5})
    test, validation = newest(frame, seed, is_by_time=is_by_time)
    if frame["item_id"].nunique() < 3:
        return
    with tempfile.TemporaryDirectory() as folder:
        dataset = prepare(
            frame.drop(columns=["time"] if times == "none" else []), Path(folder) / "out",
            protocol="new-items", seed=seed, item_id_type="text", items=items, features=["kind"],
        )  # fmt: skip
        manifest = dataset.manifest
        assert manifest.protocol == ("new-items" if is_by_time else "new-items (random)")
        found = {
            (user_id, item_id, part)
            for part, pairs in (
                ("train", dataset.train),
                ("validation", dataset.pairs("validation.parquet")),
                ("test", dataset.pairs("test.parquet")),
            )
            for user_id, item_id in zip(
                dataset.users.ids(pairs.row_index()), dataset.items.ids(pairs.item_index),
                strict=True,
            )
        }  # fmt: skip
        part = {**dict.fromkeys(test, "test"), **dict.fromkeys(validation, "validation")}
        pairs = frame[["user_id", "item_id"]].drop_duplicates().itertuples(index=False)
        assert found == {(user, item, part.get(item, "train")) for user, item in pairs}
        trained = {user for user, _, name in found if name == "train"}
        unknown = {user for user, _, name in found if name == "test"} - trained
        assert manifest.counts["num_test_users_without_history"] == len(unknown)
        assert manifest.counts["num_test_items"] == len(test)


def test_new_items_without_a_feature_are_counted(tmp_path: Path) -> None:
    """Their targets are in no list; a later interaction of a user stays in training."""
    plays = pd.DataFrame({"user_id": [1, 2] * 10, "item_id": [*range(10), *range(10)]})
    plays["time"] = 1_700_000_000 + plays["item_id"] * 86_400
    later = pd.DataFrame({"user_id": [1], "item_id": [0], "time": [1_800_000_000]})
    items = pd.DataFrame({"item_id": [*range(9), 20], "kind": [*"aabbccddea"]})
    asked: dict[str, Any] = {"protocol": "new-items", "items": items, "features": ["kind"]}
    dataset = prepare(pd.concat([plays, later]), tmp_path / "out", **asked)
    counts, manifest = dataset.manifest.counts, dataset.manifest
    assert counts["num_test_items"] == counts["num_test_items_without_feature"] == 1
    assert counts["num_test_targets_unseen_without_feature"] == 1
    assert dataset.items.ids() == [*range(8), 20, 8, 9]
    assert (manifest.num_items, manifest.num_listed_items, manifest.num_all_items) == (8, 9, 11)
    says(manifest.notes["test"])
    assert "; it looks ahead: users keep what they took later (--protocol temporal" in str(dataset)
    assert dataset.heldout("test").protocol == "new-items"


def test_new_items_need_features() -> None:
    refuse(PLAYS, "--items", "products.csv", "--features", error=SettingError, protocol="new-items")


def test_lists_of_the_values_prepare_the_same_features(tmp_path: Path) -> None:
    first = prepare(PLAYS, tmp_path / "first", **ASKED)
    assert first.features is not None
    lists = first.features.as_lists(len(first.items))
    assert lists["tags"].to_pylist() == [["1", "2"], [], [], ["2"], ["1"], []]
    table = pa.table({"item_id": first.items.ids()} | lists)
    again = prepare(PLAYS, tmp_path / "again", items=table, features=[*lists])
    for name in ("features.parquet", "feature_values.parquet"):
        found, expected = (one.manifest.parts[name].content_digest for one in (again, first))
        assert found == expected


def test_items_that_were_only_viewed_are_new(tmp_path: Path) -> None:
    """Items of filtered rows are not new, nor is a value that means a missing id."""
    frame = pd.DataFrame(
        {
            "user_id": [1, 2, 1, 2, 1, 2, 1, 2, 9],
            "item_id": ["a", "a", "b", "b", "c", "d", "NA", "viewed", "d"],
            "event": ["buy"] * 7 + ["view"] * 2,
        }
    )
    items = pd.DataFrame(
        {"item_id": ["a", "b", "c", "d", "e", "NA", "viewed"], "kind": [*"xxyyyyy"]}
    )
    dataset = prepare(
        frame, tmp_path / "out", protocol="none", event_column="event", events=["buy"],
        min_item_users=2, empty_ids="drop", empty_values=["NA"], items=items, features=["kind"],
    )  # fmt: skip
    assert dataset.items.ids() == ["a", "b", "e", "viewed"]


def test_columns_of_another_dataset(tmp_path: Path) -> None:
    """--like, a dataset or a run, gives the features unless others are given."""
    first = prepare(PLAYS, tmp_path / "first", **ASKED)
    settings = json.loads((first.path / "manifest.json").read_text())["config"]
    document = {
        "dataset": {"feature_columns": ["tags"]},
        "request": {"data": {"preparation": settings}},
    }
    shutil.copytree(first.path, run := tmp_path / "run")
    (run / "manifest.json").unlink()
    (run / "config.json").write_text(signed_text(document))
    plain = prepare(PLAYS, tmp_path / "plain", items=ITEMS)
    for place, asked, columns in (
        (first.path, {}, ("kind", "tags")),
        (run, {}, ("tags",)),
        (plain.path, {}, ()),
        (first.path, {"features": ["kind"]}, ("kind",)),
    ):
        made = prepare(PLAYS, tmp_path / "out", items=ITEMS, like=place, overwrite=True, **asked)
        assert made.manifest.feature_columns == columns
    had = ("--like", "first", "kind tags")
    refuse(PLAYS, "kind", "--features", *had, items=ITEMS.drop(columns="kind"), like=first.path)
    refuse(PLAYS, *had, error=SettingError, like=first.path)


def test_another_form_of_an_id_whose_rows_a_filter_took_out_is_not_new(tmp_path: Path) -> None:
    """The rows of one item are rated below the filter; the file spells its accent as a second
    sign."""
    plays = PLAYS.assign(rating=5)
    plays.loc[len(plays)] = [3, "caf\u00e9", 99, 1]
    kinds = {"a": "w", "b": "b", "c": "b", "cafe\u0301": "w", "x": "w"}
    items = pd.DataFrame({"item_id": [*kinds], "kind": [*kinds.values()]})
    asked: dict[str, Any] = {"items": items, "features": ["kind"]}
    filtered = prepare(plays, tmp_path / "filtered", min_rating=2, **asked)
    assert not {"caf\u00e9", "cafe\u0301"} & {*filtered.items.ids()}
    says(filtered.manifest.notes["new items"], 1, "items table")
    whole = prepare(plays, tmp_path / "whole", **asked)
    assert "caf\u00e9" in whole.items.ids()

"""Types of ids and events: read if exact, otherwise refused with advice for making text."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foretaste
from foretaste.data import PrepareConfig, prepare
from foretaste.errors import InputError
from tests.data.conftest import WriteFile, refuse
from tests.messages import raises

ALL = PrepareConfig(protocol="none")
UUIDS = [uuid.UUID(int=number) for number in (1, 2, 1)]
DECIMALS = [decimal.Decimal(number) for number in ("1", "2", "1")]
READ: dict[str, tuple[Any, list[int | str]]] = {
    "decimal128": (pa.array(DECIMALS, pa.decimal128(38, 0)), [1, 2]),
    "decimal128 with places": (pa.array(DECIMALS, pa.decimal128(10, 2)), [1, 2]),
    "decimal64": (pa.array(DECIMALS, pa.decimal64(18, 0)), [1, 2]),
    "decimal256": (pa.array(DECIMALS, pa.decimal256(38, 0)), [1, 2]),
    "large decimals": (
        pa.array([decimal.Decimal(2**80), *DECIMALS[1:]], pa.decimal128(38, 0)),
        ["1", str(2**80), "2"],
    ),
    "objects of decimals": (pd.Series(DECIMALS), [1, 2]),
    "floats": (pa.array([1.0, 2.0, 1.0]), [1, 2]),
    "UUIDs": (pa.array([one.bytes for one in UUIDS], pa.uuid()), [str(UUIDS[0]), str(UUIDS[1])]),
    "objects of UUIDs": (pd.Series(UUIDS), [str(UUIDS[0]), str(UUIDS[1])]),
}
REFUSED = {
    "binary": pa.array([b"a", b"b", b"a"]),
    "large binary": pa.array([b"a", b"b", b"a"], pa.large_binary()),
    "binary view": pa.array([b"a", b"b", b"a"], pa.binary_view()),
    "fixed size": pa.array([one.bytes for one in UUIDS], pa.binary(16)),
    "bool": pa.array([True, False, True]),
    "date": pa.array([datetime.date(2024, 1, 1)] * 3),
    "timestamp": pa.array([datetime.datetime(2024, 1, 1)] * 3),
    "list": pa.array([[1], [2], [1]]),
    "struct": pa.array([{"a": 1}, {"a": 2}, {"a": 1}]),
}


def sources(column: Any, tmp_path: Path, role: str = "item_id") -> list[Any]:
    """A frame with the column in this role, and the Parquet file of it."""
    columns = {"user_id": [1, 1, 2], "item_id": [7, 8, 7], role: column}
    if isinstance(column, pd.Series):
        return [pd.DataFrame(columns)]
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "raw.parquet")
    return [table, tmp_path / "raw.parquet"]


@pytest.mark.parametrize(("column", "ids"), READ.values(), ids=READ)
def test_exact_ids_are_read(column: Any, ids: list[int | str], tmp_path: Path) -> None:
    titles = {"item_id": column, "title": ["a", "b", "a"]}
    items = pa.table(titles) if isinstance(column, pa.Array) else pd.DataFrame(titles)
    for number, source in enumerate(sources(column, tmp_path)):
        dataset = prepare(source, tmp_path / str(number), ALL, items=items)
        assert dataset.items.ids() == ids
        assert set(dataset.items.titles() or []) == {"a", "b"}
    assert foretaste.fit("popularity", source).items.ids() == ids


@pytest.mark.parametrize("column", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    ("role", "empty_ids"), [("user_id", "refuse"), ("item_id", "drop"), ("event", "refuse")]
)
def test_other_types_are_refused_with_advice_for_making_text(
    column: Any, role: str, empty_ids: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"protocol": "none", "empty_ids": empty_ids}
    if role == "event":
        if pa.types.is_boolean(column.type):
            return
        settings |= {"event_column": "event", "events": ["1"]}
    how = ".map(bytes.hex)" if "binary" in str(column.type) else ".astype(str)"
    named = (role, re.compile("(?<=of type ).*?(?=;)"), role, how)
    for source in sources(column, tmp_path, role):
        refuse(source, *named, **settings)
    if role == "item_id":
        items = pa.table({"item_id": column, "title": ["a", "b", "c"]})
        refuse(pd.DataFrame({"user_id": [1], "item_id": [7]}), *named, items=items)


@pytest.mark.parametrize(
    ("users", "value"),
    [
        ([1.0, 2.5, None], "2.5"),
        ([1.0, float("inf"), None], "inf"),
        ([1.0, 2.0**53, None], "9007199254740992.0"),
        ([decimal.Decimal("1.5"), decimal.Decimal(2), None], "1.5"),
    ],
)
@pytest.mark.parametrize("more", [[], ["a"]])
def test_the_number_that_is_no_id_is_named(users: list[Any], value: str, more: list[str]) -> None:
    frame = pa.table({"user_id": users, "item_id": [7, 8, 9]})
    text = [pa.table({"user_id": more, "item_id": [7]})] if more else []
    refuse([frame, *text], "user_id", value, "user_id", 1, protocol="none", empty_ids="drop")


def test_floats_beside_text_are_the_text_of_integers(tmp_path: Path) -> None:
    parts = [
        pa.table({"user_id": [1.0, None, float("nan")], "item_id": [7, 8, 9]}),
        pa.table({"user_id": ["a", "1"], "item_id": [7, 8]}),
    ]
    dataset = prepare(parts, tmp_path / "out", ALL, empty_ids="drop")
    assert dataset.users.ids() == ["1", "a"]
    assert dataset.manifest.counts["num_rows_with_an_empty_id"] == 2


EVENTS = {
    "floats": ([1.0, None, 2.0], "1"),
    "nulls": ([None, None, None], ""),
    "decimals": ([decimal.Decimal(1), None, decimal.Decimal(2)], "1"),
    "bools": ([True, None, False], "true"),
    "text": (["1", None, "2"], "1"),
    "integers": ([1, None, 2], "1"),
}


@pytest.mark.parametrize(
    ("name", "empty_ids"), [*((name, "refuse") for name in EVENTS), ("nulls", "drop")]
)
def test_events_of_any_type(name: str, empty_ids: Any, tmp_path: Path) -> None:
    values, kept = EVENTS[name]
    table = pa.table({"user_id": [2, 3, 4], "item_id": [7, 8, 9], "event": values})
    other = pa.table({"user_id": [5], "item_id": [9], "event": [kept or "x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    for number, source in enumerate(([table, other], [tmp_path / "a.parquet", other])):
        dataset = prepare(
            source,
            tmp_path / str(number),
            ALL,
            event_column="event",
            events=[f"{kept or 'x'}=3"],
            empty_ids=empty_ids,
        )
        assert dataset.users.ids() == ([2, 5] if kept else [5])
        assert dataset.manifest.counts["num_rows_of_other_events"] == 3 - bool(kept)


def test_a_fraction_is_no_event() -> None:
    frame = pd.DataFrame({"user_id": [1], "item_id": [2], "event": [1.5]})
    refuse(frame, "1.5", event_column="event", events=["1"])


NULLS = {"user_id": "drop", "item_id": "drop", "time": None, "rating": None, "weight": None}


@pytest.mark.parametrize("role", NULLS)
def test_a_column_of_nulls_is_empty_in_its_role(role: str, tmp_path: Path) -> None:
    whole = {"user_id": [1, 1, 2], "item_id": [7, 8, 7], role: [1, 2, 3]}
    settings: dict[str, Any] = {"protocol": "none"}
    if role == "time":
        settings = {"protocol": "leave-one-out"}
        whole = {"user_id": [1] * 5, "item_id": [1, 2, 3, 4, 5], role: [1, 2, 3, 4, 5]}
    elif role == "rating":
        settings |= {"min_rating": 1}
    elif role == "weight":
        settings |= {"weight_column": "weight"}
    nulls = pa.table(whole | {role: pa.nulls(len(whole["user_id"]))})
    refuse([pa.table(whole), nulls], role, len(nulls), **settings)
    parts = {"rows": nulls, "no rows": nulls.slice(0, 0)}
    for name, part in parts.items():
        pq.write_table(part, tmp_path / f"{name}.parquet")
        if name == "rows" and not role.endswith("_id"):
            continue
        for number, source in enumerate((part, tmp_path / f"{name}.parquet")):
            made = prepare([source, pa.table(whole)], tmp_path / f"{name}{number}", **settings,
                           empty_ids="drop")  # fmt: skip
            num_dropped = made.manifest.counts["num_rows_with_an_empty_id"]
            assert num_dropped == (len(nulls) if name == "rows" else 0)


def test_events_in_a_mapping_are_told_their_form() -> None:
    with raises(foretaste.ForetasteError, "buy=3"):
        PrepareConfig(event_column="event", events={"buy": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "word"),
    [(["true", "false"], "true"), (["yes", "no"], "yes"), (["F", "T"], "T"), (["N", "Y"], "Y")],
)
def test_truth_in_a_column_of_numbers(values: list[str], word: str, tmp_path: Path) -> None:
    rows = {"user_id": [1, 2], "item_id": [7, 8], "liked": values}
    named = ("--event-column", "liked", "--events", word)
    refuse(pd.DataFrame(rows), *named, weight_column="liked", protocol="none")
    refuse(pd.DataFrame(rows), *named, rating_column="liked", min_rating=1, protocol="none")
    kept = prepare(pd.DataFrame(rows), tmp_path / "out", ALL, event_column="liked", events=[word])
    assert kept.manifest.num_interactions == 1
    truth = pa.table(rows | {"liked": [True, False]})
    named = ("liked", "bool", "--event-column", "liked", "--events", "true")
    refuse(truth, *named, weight_column="liked", protocol="none")


COMMAS = [
    ("1,000", "write 1000 if the comma separates thousands, 1.000 if it separates decimals"),
    ("-12,345", "write -12345 if the comma separates thousands, -12.345 if it separates decimals"),
    ("1,000,000", "write thousands without a comma: 1000000"),
    ("1,5", "write decimals with a point: 1.5"),
    ("0,123", "write decimals with a point: 0.123"),
    ("1234,567", "write decimals with a point: 1234.567"),
]


@pytest.mark.parametrize(("value", "advice"), COMMAS)
@pytest.mark.parametrize("role", ["rating", "weight", "time"])
def test_a_comma_has_both_readings(write: WriteFile, value: str, advice: str, role: str) -> None:
    source = write(f'user_id;item_id;{role}\n1;2;3\n1;3;"{value}"\n')
    settings: dict[str, Any] = {"protocol": "none"}
    if role == "rating":
        settings |= {"min_rating": 1}
    elif role == "weight":
        settings |= {"weight_column": "weight"}
    else:
        settings = {}
    with raises(InputError, source, 3, role, value, advice):
        prepare(source, source.parent / "out", **settings)

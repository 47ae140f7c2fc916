"""Rules, conditions and limits: admitted items, refusals, and files that are read again."""

from __future__ import annotations

import re
import time
from copy import copy
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretaste.data.ids import IdTable
from foretaste.errors import InputError, SettingError
from foretaste.evaluation.ranking import ABSENT
from foretaste.recommend import Recommender, conditions
from foretaste.recommend.config import ListRequest
from foretaste.recommend.max_per import Limit, MaxPer
from foretaste.recommend.rules import ItemRules
from tests.messages import Named, raises, says, whole
from tests.recommend.shop import new_users, trained_users

REPLACED = ", 'a', 'aaaaaaaaaa')"
LONG = "replacement but a value of at most 8"
RULES = 'in-stock = "stock > 0"\nred = "colour = \'red\'"\n'
COLOURS = ("red", "green", "blue", "")


def described(recommender: Recommender, stock: int = 3) -> pa.Table:
    """Stock and colour of all items except the catalogue's last ones."""
    ids = recommender.items.ids()[: recommender.model.num_items - 5]
    return pa.table(
        {
            "item_id": ids,
            "stock": [str(place % stock) for place in range(len(ids))],
            "colour": [COLOURS[place % 4] for place in range(len(ids))],
        }
    )


def with_rules(recommender: Recommender, tmp_path: Path, **options: Any) -> Recommender:
    (tmp_path / "rules.toml").write_text(RULES)
    own = copy(recommender)
    own.read_rules(tmp_path / "rules.toml", described(recommender, **options))
    return own


def met(conditions: dict[str, str], **columns: list[Any]) -> list[list[bool]]:
    """The masks of conditions on items from 0."""
    size = len(next(iter(columns.values())))
    items = IdTable.from_ids("item", range(size), **columns)
    rules = ItemRules(items, size, conditions)
    filters = [rules.filter(ListRequest(rules=(name,))) for name in conditions]
    return [each.is_allowed.tolist() for each in filters]


def walked(score: np.ndarray, k: int, limits: list[Limit]) -> list[int]:
    """Fill a list by a walk through the whole ranking."""
    taken: list[int] = []
    for item in np.argsort(-score, kind="stable").tolist():
        alike = (
            sum(limit.group[other] == limit.group[item] >= 0 for other in taken) < limit.most
            for limit in limits
        )
        if len(taken) < k and score[item] != ABSENT and all(alike):
            taken.append(item)
    return taken


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_limits_fill_lists_like_a_walk_through_the_ranking(data: st.DataObject) -> None:
    num_items = data.draw(st.integers(1, 40), "items")
    k = data.draw(st.integers(1, min(6, num_items)), "k")
    # Few scores, so that many tie.
    score = st.sampled_from([ABSENT, 0.0, 1.0, 2.0, 3.0])
    rows = data.draw(st.lists(st.lists(score, min_size=num_items, max_size=num_items), max_size=3))
    limits = []
    for number in range(data.draw(st.integers(1, 2), "limits")):
        group = st.integers(-1, data.draw(st.integers(0, 4)))
        groups = data.draw(st.lists(group, min_size=num_items, max_size=num_items))
        limits.append(Limit(str(number), data.draw(st.integers(1, 3)), np.array(groups)))
    score_BC = torch.tensor(rows).reshape(len(rows), num_items)
    score_BK, column_BK = MaxPer(limits).best(score_BC, k)
    few = torch.arange(0, num_items, 2)
    for row, scores in enumerate(rows):
        expected = walked(np.array(scores), k, limits)
        length = int((score_BK[row] != ABSENT).sum())
        assert column_BK[row, :length].tolist() == expected
        assert score_BK[row, :length].tolist() == [scores[item] for item in expected]
    if rows:  # columns that stand for some of the items
        _, column_BK = MaxPer(limits).best(score_BC[:, few], min(k, len(few)), few)
        some = [limit._replace(group=limit.group[few.numpy()]) for limit in limits]
        expected = walked(np.array(rows[0])[few.numpy()], min(k, len(few)), some)
        assert column_BK[0, : len(expected)].tolist() == expected


@pytest.mark.parametrize(
    ("values", "condition", "expected"),
    [
        (["0", "3", None, "", "12"], "x > 2", [False, True, False, False, True]),
        (["0", "3", None, "", "12"], "NOT (x > 2)", [True, False, False, False, False]),
        (["0", "3", None, "", "12"], "x IS NULL -- unknown", [False, False, True, True, False]),
        (["0.5", "1e3", "nan", "NaN", "NAN"], "x >= 7", [False, True, False, False, False]),
        (["NAN", "nAn", "1e10"], "x > 1e9", [False, False, True]),
        (["007", "7", "8"], "x = '7'", [False, True, False]),
        (["0.50", "-00", "1"], "x = '0.5'", [False, False, False]),
        (["F", "F", None], "x IN ('M', 'F')", [True, True, False]),
        (["7", "n/a", "8"], "x = '7'", [True, False, False]),
        (["true", "false", None], "x", [True, False, False]),
        (["2024-02-01", "2025-01-01"], "x < DATE '2024-12-31'", [True, False]),
        (["99999999999999999999", "1"], "x > 5", [True, False]),
        ([None, None], "x > 5 OR x = 'wine' OR item_id = 1", [False, True]),
        ([1, 2, 3], "x IN (1, 3)", [True, False, True]),
    ],
)
def test_columns_have_the_type_of_their_values(
    values: list[Any], condition: str, expected: list[bool]
) -> None:
    assert met({"one": condition}, x=values) == [expected]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("stok > 0", "rule one, 'stok > 0': there is no column stok"),
        ("stok > 0", "the items have item_id BIGINT, stock BIGINT, name VARCHAR"),
        ("name > 0", "rule one"),
        ("stock > 0; DROP TABLE texts", "rule one"),
        ("true) FROM items; SELECT (true", "is no condition"),
        ("stock", "is no condition, true or false for each item"),
        ("true), (true", "is no condition"),
        ("true) AS a, item_index FROM items WHERE (stock > 0", "rule one"),
        ("stock > 0 ORDER BY 1", "syntax error"),
        ("", "is no condition"),
    ],
)
def test_text_that_is_no_condition_is_refused(condition: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        met({"one": condition}, stock=["1", "0"], name=["a", "b"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        (f"({ENDLESS}) > 0", "subquery"),
        ("EXISTS (SELECT 1 FROM enable_logging(storage='file', storage_path='x'))", "subquery"),
        ("EXISTS (SELECT * FROM read_text('/etc/hostname'))", "subquery"),
        ("EXISTS (SELECT * FROM 'items.parquet')", "subquery"),
        ("(SELECT count(*) FROM items a, items b, items c) > 0", "subquery"),
        ("stock IN (SELECT max(stock) FROM items)", "subquery"),
        ("stock = ANY ([1, 2])", "subquery"),
        ("CASE WHEN stock > 0 THEN EXISTS (SELECT 1) END", "subquery"),
        ("list_filter([1], lambda y: EXISTS (SELECT y)) = [1]", "subquery"),
        ("row_number() OVER () > 1", "window"),
        ("COLUMNS(*) > 0", "star"),
        ("*", "star"),
        ("stock > $1", "parameter"),
        ("#2", "positional reference"),
        ("stock = DEFAULT", "default"),
        ("count(*) > 1", "function count_star"),
        ("sum(stock) > 1", "function sum"),
        ("geomean(stock) > 1", "function avg"),
        ("unnest([true, false])", "function unnest"),
        ("generate_subscripts([1], 1) > 0", "function unnest"),
        ("get_block_size('memory') > 0", "subquery"),
        ("random() > 0.5", "function random"),
        ("RANDOM() > 0.5", "function random"),
        ("main.random() > 0.5", "function random"),
        ("uuid() IS NULL", "function uuid"),
        ("nextval('one') > 0", "function nextval"),
        ("write_log('x') IS NULL", "function write_log"),
        ("sleep_ms(60000) IS NULL", "function sleep_ms"),
        ("error('x') IS NULL", "function error"),
        ("assert_true(stock > 0) IS NULL", "function error"),
        ("no_such_function(stock)", "function no_such_function"),
        ("length(repeat('x', 4000000000)) > 0", "function repeat"),
        ("len(range(1000000000000)) > 0", "function range"),
        ("len(generate_series(1, 1000000000000)) > 0", "function generate_series"),
        ("length(lpad('x', 4000000000, ' ')) > 0", "function lpad"),
        ("length(rpad('x', 4000000000, ' ')) > 0", "function rpad"),
        ("length(printf('%4000000000d', 1)) > 0", "function printf"),
        ("length(format('{:>4000000000}', 'x')) > 0", "function format"),
        ("len(list_resize([1], 4000000000)) > 0", "function list_resize"),
        ("bit_count(bitstring('1', 4000000000)) > 0", "function bitstring"),
        (
            "__internal_compress_string_utinyint(name) > 0",
            "function __internal_compress_string_utinyint",
        ),
        ("json_serialize_plan('SELECT 1') IS NULL", "function json_serialize_plan"),
        (f"length({'replace(' * 5}name{REPLACED * 5}) > 0", LONG),
        ("replace(name, 'a', name) = 'a'", LONG),
        ("name.REPLACE('a', 'nine long') = 'a'", LONG),
        ("regexp_replace(name, 'a', name || 'b', 'g') = 'a'", LONG),
    ],
)
def test_conditions_on_several_items_are_refused(condition: str, what: str) -> None:
    with raises(SettingError, "one", condition, what):
        met({"one": condition}, stock=["1", "0"], name=["a", "b"])


@pytest.mark.parametrize(
    "condition",
    [
        "true); DROP VIEW items; CREATE VIEW items AS (SELECT 1",
        "true) AS is_met FROM items; SELECT item_index, (true",
        "true) AS is_met FROM items UNION ALL SELECT item_index, (true",
        "true) AS is_met FROM items, items AS b; --",
        "true) AS is_met FROM items a, items -- ",
        "true) AS is_met FROM items WHERE (stock > 0) -- ",
        "true) AS is_met FROM items LIMIT 1 --",
        "true) AS is_met FROM items USING SAMPLE 1 --",
        "true) AS other FROM items --",
        "true), (true",
        "true) AS is_met FROM texts --",
    ],
)
def test_a_condition_is_one_expression_of_one_statement(condition: str) -> None:
    with raises(SettingError, "one", condition):
        met({"one": condition}, stock=["1", "0"])


@pytest.mark.parametrize(
    "condition",
    [
        "genres LIKE 'a%'",
        "genres ILIKE 'A%' AND genres NOT LIKE 'b%'",
        "stock IN (1, 2)",
        "stock BETWEEN 1 AND 2",
        "CASE WHEN stock > 0 THEN true ELSE false END",
        "if(stock > 0, true, false)",
        "nullif(stock, 0) IS NOT NULL",
        "list_contains(string_split(genres, '|'), 'a')",
        "split_part(genres, '|', 1) = 'a'",
        "len(list_filter(string_split(genres, '|'), lambda y: y = 'a')) > 0",
        "until > now()",
        "until > current_timestamp - INTERVAL 3 DAY",
        "until > DATE '2020-01-01' + INTERVAL (stock) DAY",
        "CAST(stock AS VARCHAR) = '1' AND genres COLLATE NOCASE = 'A|B'",
        "TRY_CAST(genres AS INTEGER) IS NULL AND stock::DECIMAL(10, 2) > 0.5",
        "regexp_matches(genres, '^a') AND lower(genres) SIMILAR TO 'a.*'",
        "abs(stock - 2) < 2 AND extract(year FROM until) = 2999",
        "replace(replace(genres, '|', ' and '), 'b', '') = 'a and '",
        "regexp_replace(genres, '[^a-z]{1,9}', '', 'g') = 'ab' AND genres.replace('a', '') = '|b'",
        "stock > 0 -- what is there",
    ],
)
def test_conditions_on_one_item_are_accepted(condition: str) -> None:
    columns = {"stock": ["1", "0"], "genres": ["a|b", "c"]}
    columns["until"] = ["2999-01-01T00:00:00Z", "1999-01-01T00:00:00Z"]
    assert met({"one": condition}, **columns) == [[True, False]]


@pytest.mark.parametrize("depth", [900, 1_000, 100_000])
@pytest.mark.parametrize(("before", "after"), [("- ", ""), ("NOT ", ""), ("abs(", ")")])
def test_a_deep_condition_is_refused(depth: int, before: str, after: str) -> None:
    with raises(SettingError, "one", whole("nested too deeply|depth limit")):
        met({"one": f"{before * depth}stock{after * depth} > 0"}, stock=["1", "0"])


def test_a_condition_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "DEADLINE_S", 0.2)
    monkeypatch.setattr(conditions, "check_condition", lambda cursor, condition: None)
    # DuckDB interrupts a recursion, and no function in C.
    for condition in (f"({ENDLESS}) > 0", "sleep_ms(3000) IS NULL"):
        with raises(SettingError, "one", condition, 0.2):
            met({"one": condition}, stock=["1", "0"])
    monkeypatch.undo()
    assert met({"one": "stock > 0"}, stock=["1", "0"]) == [[True, False]]


def test_the_database_of_items_is_closed() -> None:
    database = conditions.ItemColumns(pa.table({"item_id": [1]}))._database.cursor()
    for statement in (
        "SET threads = 4",
        "SET enable_external_access = true",
        "SET GLOBAL TimeZone = 'Asia/Tokyo'",
        "SELECT * FROM enable_logging(storage='file', storage_path='x')",
        "SELECT * FROM read_text('/etc/hostname')",
        "ATTACH 'x.db'",
        "COPY (SELECT 1) TO 'x.csv'",
        "INSTALL httpfs",
        "SELECT * FROM recommender",
    ):
        with pytest.raises(duckdb.Error):
            database.execute(statement).fetchall()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_times_are_instants_in_utc(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    now = datetime.now(UTC)
    hours = [now + timedelta(hours=hours) for hours in (1, -1)]
    tokyo = timezone(timedelta(hours=9))
    spellings: dict[str, list[Any]] = {
        "z": [f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in hours],
        "spaced": [one.astimezone(tokyo).isoformat(sep=" ") for one in hours],
        "apart": [f"{one.astimezone(tokyo):%Y-%m-%d %H:%M:%S} +09:00" for one in hours],
        "named": [f"{one.astimezone(tokyo):%Y-%m-%d %H:%M:%S} Asia/Tokyo" for one in hours],
        "naive": [f"{one:%Y-%m-%d %H:%M:%S}" for one in hours],
        "stored": [one.astimezone(tokyo) for one in hours],
    }
    rules = {name: f"{name} > now()" for name in spellings}
    rules["day"] = "naive > current_date - INTERVAL 2 DAY AND naive > TIMESTAMP '2020-01-01'"
    try:
        found = met(rules, **spellings)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == [[True, False]] * len(spellings) + [[True, True]]


def test_a_column_of_times_with_and_without_offsets_is_named() -> None:
    until = ["2024-01-01 12:00:00+05:00", "2024-01-01 12:00:00"]
    with raises(SettingError, "one", "until > now()", "until VARCHAR"):
        met({"one": "until > now()"}, until=until)
    assert met({"one": "until LIKE '%+05:00'"}, until=until) == [[True, False]]


def test_rules_and_conditions_let_in_what_meets_them(personal: Recommender, tmp_path: Path) -> None:
    recommender = with_rules(personal, tmp_path)
    rows = described(personal).to_pylist()
    allowed = [row["item_id"] for row in rows if row["stock"] != "0" and row["colour"] == "red"]
    users = [*trained_users(personal)[:4], new_users(personal)[0]]
    expected = personal.recommend(users, k=4, candidates=allowed)
    assert any(answer.item_ids for answer in expected)
    for options in (
        {"rules": ["in-stock", "red"]},
        {"rules": ["red"], "where": "stock > 0"},
        {"where": "stock > 0 AND colour = 'red'"},
        {"rules": ["in-stock"], "candidates": [r["item_id"] for r in rows if r["colour"] == "red"]},
    ):
        found = recommender.recommend(users, k=4, **options)
        assert [one.item_ids for one in found] == [one.item_ids for one in expected]
        new = recommender.recommend_for([[1, 5]], k=4, **options)
        assert (
            new[0].item_ids == personal.recommend_for([[1, 5]], 4, candidates=allowed)[0].item_ids
        )


def test_a_list_holds_at_most_the_limit_of_each_value(
    personal: Recommender, tmp_path: Path
) -> None:
    recommender = with_rules(personal, tmp_path)
    colour_of = {row["item_id"]: row["colour"] for row in described(personal).to_pylist()}
    users = [*trained_users(personal)[:4], new_users(personal)[0]]
    whole = recommender.recommend(users, k=personal.model.num_items)
    for k in (1, 3, 6, 12):
        found = recommender.recommend(users, k=k, max_per={"colour": 2})
        for answer, ranking in zip(found, whole, strict=True):
            expected: list[Any] = []
            for item in ranking.item_ids:
                colour = colour_of.get(item, "")  # '' is no colour, and not limited
                if not colour or [colour_of.get(one) for one in expected].count(colour) < 2:
                    expected.append(item)
            assert answer.item_ids == expected[:k]
            assert answer.scores == sorted(answer.scores, reverse=True)


def test_a_short_list_says_why(popularity: Recommender, tmp_path: Path) -> None:
    recommender = with_rules(popularity, tmp_path)
    user = trained_users(popularity)[:1]
    (answer,) = recommender.recommend(
        user, k=9, rules=["red"], where="stock >= 0", max_per={"stock": 1}, include_seen=True
    )
    assert len(answer.item_ids) == 3
    size = sum(row["colour"] == "red" for row in described(popularity).to_pylist())
    says(answer.reason, 3, 9, size, "red", "stock >= 0", size - 3, "1 per stock")
    (answer,) = recommender.recommend(user, k=9, rules=["red"], max_per={"stock": 1, "colour": 2})
    says(answer.reason, 2, 9, size, "red", size - 2, "2 per colour", "1 per stock")
    (answer,) = recommender.recommend(user, where="title = '{}'")
    says(answer.reason, 0, 10, 0, "title = '{}'")


def test_files_hold_the_same_lists(personal: Recommender, tmp_path: Path) -> None:
    recommender = with_rules(personal, tmp_path)
    options: dict[str, Any] = {"k": 3, "rules": ["in-stock"], "max_per": {"colour": 1}}
    users = trained_users(personal)[:6]
    recommender.recommend_all(tmp_path / "all.parquet", user_ids=users, **options)
    recommender.recommend_all_for(tmp_path / "new.parquet", {7: [1, 5]}, **options)
    expected = recommender.recommend(users, **options)
    found = pq.read_table(tmp_path / "all.parquet")
    assert found["item_id"].to_pylist() == [item for one in expected for item in one.item_ids]
    new = pq.read_table(tmp_path / "new.parquet")
    assert new["item_id"].to_pylist() == recommender.recommend_for([[1, 5]], **options)[0].item_ids


def test_stock_is_read_again(popularity: Recommender, tmp_path: Path) -> None:
    recommender, user = copy(popularity), trained_users(popularity)[:1]
    rules, stock = tmp_path / "rules.toml", tmp_path / "stock.csv"
    rules.write_text(RULES.splitlines()[0])
    first, second = popularity.recommend(user, k=2)[0].item_ids

    def answer() -> list[Any]:
        return list(recommender.recommend(user, k=2, rules=["in-stock"])[0].item_ids)

    stock.write_text(f"item_id,stock\n{first},4\n{second},0\n999999,5\n")
    recommender.read_rules(rules, stock)
    assert answer() == [first]
    stock.write_text(f"item_id,stock\n{second},1\n")
    assert answer() == [first]
    recommender.read_rules(rules, stock)
    assert answer() == [second]
    for text, *named in (
        ("item_id,stock\n999999,5\n", "stock.csv", 999999),
        ("item_id,stock\n", "stock.csv"),
        (f"item_id,amount\n{first},5\n", "in-stock", "stock > 0", "stock"),
        (f"item_id,stock\n{first},many\n", "in-stock", "stock > 0"),
    ):
        stock.write_text(text)
        with raises((InputError, SettingError), *named):
            recommender.read_rules(rules, stock)
        assert answer() == [second]


def test_columns_of_a_file_take_the_place_of_the_runs(popularity: Recommender) -> None:
    recommender, items = copy(popularity), popularity.items
    first = items.ids()[0]
    by_title = ListRequest(where=f"title = 'The Book of {first}'")
    assert recommender.item_rules.filter(by_title).size == 1
    recommender.read_rules(items=pa.table({"item_id": [first], "Title": ["x"], "stock": [1]}))
    found = recommender.item_rules.filter(ListRequest(where="title = 'x' AND stock = 1"))
    assert np.flatnonzero(found.is_allowed).tolist() == [0]


def test_unknown_rules_and_columns_are_refused(popularity: Recommender, tmp_path: Path) -> None:
    user = trained_users(popularity)[:1]
    recommender = with_rules(popularity, tmp_path)
    for options, *named in (
        ({"rules": ["sale"]}, "sale", "in-stock", "red"),
        ({"rules": ["stock > 0"]}, "stock > 0", "in-stock", "red"),
        ({"rules": "red"}, "rules", "red"),
        ({"where": "sale"}, "where", "sale", "sale"),
        ({"max_per": {"size": 2}}, "max_per", "size", "title", "stock", "colour"),
        ({"max_per": {"stock": 0}}, "max_per", "stock", 0, 1),
        ({"max_per": ["stock"]}, "max_per", "stock", 1),
    ):
        with raises(SettingError, *named):
            recommender.recommend(user, **options)  # type: ignore[arg-type]
    with raises(SettingError, "sale"):
        popularity.recommend(user, rules=["sale"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("wine = category = 'wine'", (re.compile("(?<=TOML: ).*"),)),
        ("[wine]\nif = 'x'", ("wine", 'wine = "stock > 0"')),
        (None, (re.compile("(?<=TOML: ).*"),)),
    ],
)
def test_a_file_that_holds_no_rules(
    popularity: Recommender, tmp_path: Path, text: str | None, named: Named
) -> None:
    path = tmp_path / "rules.toml"
    if text is not None:
        path.write_text(text)
    with raises(InputError, "rules.toml", *named):
        popularity.read_rules(path)


def test_a_file_of_rules_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(b'\xef\xbb\xbfnear = "item_id < 2"\r\n')
    items = IdTable.from_ids("item", range(3))
    assert ItemRules.read(items, 3, path, None).names == ["near"]
    path.write_bytes('near = "item_id < 2"'.encode("utf-16"))
    with raises(InputError, "rules.toml", re.compile("'utf-8' codec.*")):
        ItemRules.read(items, 3, path, None)


@pytest.mark.parametrize("columns", ["Genre,genre", "genre,stock,GENRE"])
def test_columns_that_differ_in_case_alone_are_refused(tmp_path: Path, columns: str) -> None:
    items, path = IdTable.from_ids("item", range(2)), tmp_path / "items.csv"
    path.write_text(f"item_id,title,{columns}\n0,x{',a' * len(columns.split(','))}\n")
    first, *_, last = columns.split(",")
    with raises(InputError, "items.csv", first, last):
        ItemRules.read(items, 2, None, path)

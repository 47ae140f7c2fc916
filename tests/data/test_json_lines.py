"""Files of JSON lines are read correctly, and a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretaste.data import Dataset, PrepareConfig, prepare
from tests.data.conftest import WriteFile, refuse
from tests.messages import Named

ROW = '{"user_id": 1, "item_id": "a"}\n'


def prepare_lines(source: Path, **settings: object) -> Dataset:
    config = PrepareConfig(**{"protocol": "none", **settings})  # type: ignore[arg-type]
    return prepare(source, source.parent / "out", config, overwrite=True)


@pytest.mark.parametrize("name", ["raw.jsonl", "raw.ndjson", "raw.json"])
def test_ids_stay_what_they_are(write: WriteFile, name: str) -> None:
    text = (
        '{"user_id": 9007199254740993, "item_id": "007", "tags": ["x"]}\n\n'
        '{"item_id": "a/b \\u00e9\\n", "user_id": -1}\n'
        '{"user_id": 3, "item_id": "77.5", "more": null}'
    )
    dataset = prepare_lines(write(text, name))
    assert dataset.users.ids() == [-1, 3, 9007199254740993]
    assert dataset.items.ids() == ["007", "77.5", "a/b \u00e9\n"]
    assert dataset.manifest.id_types == {"user_id": "integer", "item_id": "text"}


def test_keys_of_any_name(write: WriteFile) -> None:
    row = {"a/b~c'\"": 5, "item_id": 6, "bad\n": 1}
    dataset = prepare_lines(write(json.dumps(row), "raw.jsonl"), user_column="a/b~c'\"")
    assert (dataset.users.ids(), dataset.items.ids()) == ([5], [6])


def test_a_key_that_stands_for_no_column_is_not_read(write: WriteFile) -> None:
    dataset = prepare_lines(write('{"user_id": 1, "-": 5, "item_id": 2}\n', "raw.jsonl"))
    assert "not used" not in dataset.manifest.notes
    source = write('{"-": 5, "item_id": 2}\n', "raw.jsonl")
    refuse(source, "-", "--user-column", user_column="-")


def test_a_key_may_come_later_than_the_first_line(write: WriteFile) -> None:
    source = write('{"user_id": 1}\n{"item_id": 2, "user_id": 1}\n', "raw.jsonl")
    refuse(source, "raw.jsonl", 1, "item_id", "item_id", 1)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"user_id": 1, "item_id": }', (2003, "item_id")),
        ("[1, 2]", (2003, "[1, 2]")),
        ('{"user_id": 1,', (2003,)),
        ('{"user_id": "", "item_id": "a"}', (2003, "user_id")),
        ('{"user_id": null, "item_id": "a"}', (2003, "user_id")),
        ('{"user_id": "caf\udce9", "item_id": "a"}', (2003,)),
        ('{"user_id": "\\ud800", "item_id": "a"}', ("raw.jsonl",)),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(write: WriteFile, line: str, named: Named) -> None:
    text = ROW * 2000 + "\n\n" + line + "\n" + ROW
    refuse(write(text.encode(errors="surrogateescape"), "raw.jsonl"), *named)


def test_a_value_that_does_not_fit_is_named(write: WriteFile) -> None:
    rows = (
        '{"user_id": 1, "item_id": 2, "rating": 1.50}\n{"user_id": 1, "item_id": 3, "rating": %s}'
    )
    for value, said in (('"good"', "'good'"), ("true", "'true'"), ('{"a": 1}', "'{\"a\":1}'")):
        source = write(rows % value, "raw.jsonl")
        refuse(source, 2, said, min_rating=1)


@pytest.mark.parametrize(
    "text", ['[\n  {"user_id": 1}\n]\n', '[{"user_id": 1}]', "user,item\n1,2\n"]
)
def test_a_file_that_is_not_lines_of_objects(write: WriteFile, text: str) -> None:
    refuse(write(text, "raw.json"), "raw.json", 1)


def test_keys_are_looked_for_in_lines_of_any_length(write: WriteFile) -> None:
    long = json.dumps({"user_id": 1, "item_id": 2, "text": "x" * 1_500_000}) + "\n"
    source = write(long + long + '{"user_id": 1, "item_id": 3, "title": "late"}\n', "raw.jsonl")
    dataset = prepare_lines(source)
    assert dataset.items.ids() == [2, 3]
    assert dataset.manifest.notes["not used"].startswith("'text', 'title';")


def test_items_may_be_described_by_json_lines(write: WriteFile, tmp_path: Path) -> None:
    items = write('{"title": "A", "item_id": "a"}\n', "items.jsonl")
    config = PrepareConfig(protocol="none")
    dataset = prepare(write(ROW, "raw.jsonl"), tmp_path / "out", config, items=items)
    assert dataset.items.titles() == ["A"]


def test_a_file_with_named_columns_is_delimited_text(write: WriteFile) -> None:
    dataset = prepare_lines(write("1,2\n", "raw.json"), columns=("user_id", "item_id"))
    assert dataset.items.ids() == [2]


@pytest.mark.parametrize("num_lines", [1000, 1001, 3000])
def test_a_key_is_found_wherever_it_is_first_seen(write: WriteFile, num_lines: int) -> None:
    """Times, titles and named columns; a line without the key has no value."""
    first = "".join(f'{{"user_id": {row % 50}, "item_id": {row}}}\n' for row in range(num_lines))
    later = '{"user_id": 1, "item_id": 7, "kind": "buy", "timestamp": 5, "stock": 1}\n'
    source = write(first + later, "raw.jsonl")
    events = prepare_lines(source, event_column="kind", events=("buy",))
    assert events.manifest.counts["num_rows_of_other_events"] == num_lines
    refuse(source, "cost", "--weight-column", weight_column="cost")
    refuse(source, 1, "timestamp")
    items = write('{"item_id": 7}\n' * num_lines + '{"item_id": 7, "title": "A"}\n', "items.jsonl")
    config = PrepareConfig(protocol="none")
    source = write(ROW.replace('"a"', "7"), "raw.jsonl")
    titled = prepare(source, source.parent / "t", config, items=items)
    assert titled.items.titles() == ["A"]


@pytest.mark.parametrize("value", ['{"$oid": "a1"}', "[1, 2]", "true", "false"])
@pytest.mark.parametrize("key", ["user_id", "item_id"])
def test_an_id_is_text_or_a_number(write: WriteFile, key: str, value: str) -> None:
    row = {"user_id": '"true"', "item_id": '"[1]"'}
    lines = [f'{{"user_id": {one["user_id"]}, "item_id": {one["item_id"]}}}\n'
             for one in (row, row | {key: value})]  # fmt: skip
    assert prepare_lines(write(lines[0], "raw.jsonl")).users.ids() == ["true"]
    advice = [f"jq -c '.{key} = .{key}[\"$oid\"]'"] if "{" in value else []
    refuse(write("".join(lines), "raw.jsonl"), 2, key, 1, *advice)

"""Notes on ids: changed by another program, meaning nobody, or equal except for their form."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pandas as pd
import pytest

import foretaste
from foretaste.data import PrepareConfig, prepare
from foretaste.data.preparation import notes as id_notes
from foretaste.errors import InputError, SettingError
from foretaste.models.linear.weights import MOST_COUNTED
from tests.data.conftest import PrepareText, WriteFile
from tests.messages import raises, says

ALL = PrepareConfig(protocol="none")
LINES = "".join(f"{n % 160},{n % 37}\n" for n in range(800))


def header_again(odd: str = "user_id,item_id\n") -> str:
    return f"user_id,item_id\n{LINES}{odd}{LINES}"


@pytest.mark.parametrize("odd", ["item_id", "Total", "---", r"\N", "#REF!", "#N/A", "####", "NA"])
def test_few_ids_that_make_all_text_are_named(prepared: PrepareText, odd: str) -> None:
    notes = prepared(header_again(f"7,{odd}\n"), protocol="none").manifest.notes
    says(notes["item ids"], 1, "1,601", repr(odd), "out.csv", 802)
    assert "user ids" not in notes


def test_a_header_in_the_middle_is_named_for_both(write: WriteFile, tmp_path: Path) -> None:
    source = write(header_again(), "both.csv")
    notes = prepare(source, tmp_path / "out", ALL, min_item_users=2).manifest.notes
    for label, name in (("user ids", "user_id"), ("item ids", "item_id")):
        says(notes[label], 1, "1,601", name, "both.csv", 802)


@pytest.mark.parametrize(
    ("odd", "is_noted"),
    [
        ("".join(f"7,x{n % 10}\n" for n in range(16)), True),
        ("".join(f"7,x{n % 11}\n" for n in range(16)), False),
        ("7,x\n" * 17, False),
    ],
)
def test_many_ids_that_are_no_integers_are_not_odd(
    prepared: PrepareText, odd: str, is_noted: bool
) -> None:
    notes = prepared(header_again(odd), protocol="none").manifest.notes
    assert ("item ids" in notes) is is_noted
    if is_noted:
        says(notes["item ids"], 16, "1,616", "x0", "out.csv", 802)


def test_ids_that_are_to_be_text_are_not_odd(prepared: PrepareText) -> None:
    settings = {"protocol": "none", "item_id_type": "text"}
    assert prepared(header_again("7,Total\n"), **settings).manifest.notes == {}


def of_one_user(user: object, num_users: int = 100, num_rows: int = 60) -> str:
    others = [f"{100 + n},{n % 7 + 1}\n{100 + n},{n % 5 + 1}\n" for n in range(num_users - 1)]
    return (
        "user_id,item_id\n"
        + "".join(others)
        + "".join(f"{user},{n + 1}\n" for n in range(num_rows))
    )


@pytest.mark.parametrize("user", ["NA", r"\N", "NULL", "None", "guest", "0", "-1", "unknown"])
def test_a_user_with_many_rows_is_named_and_can_be_dropped(
    prepared: PrepareText, user: str
) -> None:
    notes = prepared(of_one_user(user), protocol="none").manifest.notes
    quoted = f"'{user}'" if "\\" in user else user
    who = user if user in "0-1" else repr(user)
    says(notes["most active user"], who, "23%", f"--empty-ids drop with --empty-values {quoted}")
    settings = {"empty_ids": "drop", "empty_values": [user], "protocol": "none"}
    dropped = prepared(of_one_user(user), "dropped", **settings)
    assert dropped.manifest.counts["num_rows_with_an_empty_id"] == 60
    assert dropped.manifest.num_users == 99
    assert dropped.users.is_integer
    assert "most active user" not in dropped.manifest.notes


def test_users_with_long_histories_are_counted(
    prepared: PrepareText, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert id_notes.LONG_HISTORY == MOST_COUNTED
    monkeypatch.setattr(id_notes, "LONG_HISTORY", 18)
    ((name, note),) = prepared(of_one_user("bot", 100, 19), protocol="none").manifest.notes.items()
    says(f"{name}: {note}", "long histories", 1, 18, "bot", 19, 18)


@pytest.mark.parametrize("sizes", [(99, 60), (100, 19), (100, 10), (300, 30)])
def test_other_users_are_not_named(prepared: PrepareText, sizes: tuple[int, int]) -> None:
    assert prepared(of_one_user("NA", *sizes), protocol="none").manifest.notes == {}


def test_empty_values_of_any_type(tmp_path: Path) -> None:
    settings = PrepareConfig(protocol="none", empty_ids="drop", empty_values=("0", "NA"))
    rows = {"user_id": [0, 1, 2], "item_id": [7, 7, 8]}
    frames = [
        pd.DataFrame(rows),
        pd.DataFrame(rows).astype(float),
        pd.DataFrame(rows).astype({"user_id": "string"}),
        pd.DataFrame(rows | {"user_id": ["NA", "1", "2"]}),
    ]
    for number, frame in enumerate(frames):
        dataset = prepare(frame, tmp_path / str(number), settings)
        assert dataset.users.ids() == [1, 2]
        assert dataset.manifest.counts["num_rows_with_an_empty_id"] == 1
    assert "empty_values" not in PrepareConfig().content()
    assert dataset.manifest.config["empty_values"] == ["0", "NA"]
    with raises(SettingError, "empty_values", "empty_ids", "--empty-ids"):
        PrepareConfig(empty_values=("NA",))


GOODREADS = 'user,isbn\nann,="0385333846"\nann,=""\nbob,=""\nbob,="0316769487"\ncid,\'\ncid,\'007\n'


def test_ids_as_spreadsheets_protect_them(prepared: PrepareText) -> None:
    dataset = prepared(GOODREADS, protocol="none", empty_ids="drop")
    assert dataset.items.ids() == ["'007", '="0316769487"', '="0385333846"']
    assert dataset.manifest.counts["num_rows_with_an_empty_id"] == 3
    assert dataset.manifest.notes["item ids"] == (
        "kept as text: '=\"0316769487\"' is a formula, which spreadsheets show as 0316769487 "
        '(2 rows like it); "\'007" begins with a mark of text, and spreadsheets show 007 '
        "(1 row like it)"
    )
    with raises(InputError, "refused.csv", "item_id", "isbn", 3):
        prepared(GOODREADS, "refused", protocol="none")


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("1,23457E+15", "is rounded, as spreadsheets round long numbers"),
        ("1.00E+06", "is rounded, as spreadsheets round long numbers"),
        ("#REF!", "is an error of a spreadsheet: the id is lost"),
        ("#N/A", "is an error of a spreadsheet"),
        ("########", "is an error of a spreadsheet"),
        ("1-Mar", "is a date, as spreadsheets make of codes such as MAR1"),
        ("Mar-01", "is a date, as spreadsheets make of codes such as MAR1"),
        ("[1,2]", "looks like several ids in one field"),
        ("7 8 9", "looks like several ids in one field"),
        ('{"a": 1}', "looks like several ids in one field"),
        ("A1\t", "has spaces or invisible characters around it"),
        ("A1\r", "has spaces or invisible characters around it"),
        ("\u200bA1", "has spaces or invisible characters around it"),
        ("A1\u00ad", "has spaces or invisible characters around it"),
        ("\ufeffA1", "has spaces or invisible characters around it"),
        ("A1\u2060", "has spaces or invisible characters around it"),
        ("A1\u00a0", "has spaces or invisible characters around it"),
        ('"A1"', "has quotes around it; --quote double"),
    ],
)
def test_ids_that_another_program_changed(tmp_path: Path, item: str, problem: str) -> None:
    frame = pd.DataFrame({"user_id": [1, 2, 3], "item_id": [item, item, "A1"]})
    notes = prepare(frame, tmp_path / "out", ALL).manifest.notes
    assert notes["item ids"].startswith(f"kept as text: {item!r} {problem}")
    assert notes["item ids"].endswith("(2 rows like it)")
    titles = pd.DataFrame({"item_id": ["A1", item], "title": ["a", "b"]})
    plain = pd.DataFrame({"user_id": [1, 2], "item_id": ["A1", "B2"]})
    notes = prepare(plain, tmp_path / "items", ALL, items=titles).manifest.notes
    assert f"{item!r} {problem}" in notes["ids of items table"]


CAFE = [unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")]


def test_ids_that_differ_in_their_form_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user_id": [1, 2, 3], "item_id": [*CAFE, "tea"]})
    dataset = prepare(frame, tmp_path / "out", ALL)
    assert dataset.items.ids() == [CAFE[1], CAFE[0], "tea"]
    says(dataset.manifest.notes["item ids"], ascii(CAFE[1]), ascii(CAFE[0]), 1)
    alone = prepare(frame[1:], tmp_path / "alone", ALL)
    assert "item ids" not in alone.manifest.notes


@pytest.mark.parametrize(
    ("described", "titles"),
    [
        ([CAFE[0]], ["one", "one"]),
        ([CAFE[1]], ["one", "one"]),
        ([CAFE[0], CAFE[1]], ["two", "one"]),
        (["tea"], [None, None]),
    ],
)
def test_titles_go_to_the_exact_id_then_to_the_only_one_of_its_form(
    described: list[str], titles: list[str | None], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"user_id": [1, 2, 3], "item_id": [*CAFE, "tea"]})
    items = pd.DataFrame({"item_id": described, "title": ["one", "two"][: len(described)]})
    dataset = prepare(frame, tmp_path / "out", ALL, items=items)
    assert dataset.items.ids() == [CAFE[1], CAFE[0], "tea"]
    assert (dataset.items.titles() or [])[:2] == titles
    recommender = foretaste.fit("popularity", frame)
    recommender.read_rules(None, items)
    for title in ("one", "two"):
        (answer,) = recommender.recommend_for([["tea"]], 3, where=f"title = '{title}'")
        ids = dataset.items.ids()
        found = {item for item, one in zip(ids, titles, strict=False) if one == title}
        assert set(answer.item_ids) == found


def test_two_ids_of_one_form_title_no_third(tmp_path: Path) -> None:
    ring = ["\u00c5", "\u212b", "A\u030a"]
    frame = pd.DataFrame({"user_id": [1, 2], "item_id": [ring[0], "tea"]})
    items = pd.DataFrame({"item_id": [*ring[1:], "tea"], "title": ["one", "two", "Tea"]})
    dataset = prepare(frame, tmp_path / "out", ALL, items=items)
    assert dataset.items.titles() == ["Tea", None]

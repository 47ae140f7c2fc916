"""Notes of a preparation: titles, suspicious ids, useless parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pytest

import foretaste
from foretaste.data import Dataset, PrepareConfig, open_or_prepare, prepare
from foretaste.data.request import PrepareRequest
from foretaste.errors import DataWarning, InputError, SettingError
from tests.data.conftest import PrepareText, WriteFile, refuse
from tests.messages import raises, says, whole

PAIRS = "user_id,item_id\n1,10\n1,20\n2,10\n2,30\n"
ALL = PrepareConfig(protocol="none")


@pytest.fixture
def titles(write: WriteFile, tmp_path: Path) -> PrepareText:
    """Prepare `PAIRS` with the text of a file of items; the note on titles, and the titles."""

    def titles(content: str, **settings: object) -> tuple[str, list[str | None] | None]:
        config = PrepareConfig(protocol="none", **settings)  # type: ignore[arg-type]
        items = write(content, "more/items.csv")
        dataset = prepare(write(PAIRS), tmp_path / "out", config, items=items)
        return dataset.manifest.notes["titles"], dataset.items.titles()

    return titles  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("content", "message", "found"),
    [
        ("item_id,Name\n10,Ten\n20,\n99,Other\n", "'Name' of items.csv, for 1 of 3 items", 1),
        (
            "item_id,title\n10,Ten\n20,Twenty\n30,Thirty\n",
            "'title' of items.csv, for 3 of 3 items",
            3,
        ),
        (
            "item_id,colour\n10,Ten\n",
            "none, because no column of items.csv looks like a title: 'colour' "
            "(--title-column names one)",
            None,
        ),
    ],
)
def test_the_note_on_titles_names_their_column(
    titles: PrepareText, content: str, message: str, found: int | None
) -> None:
    note, kept = titles(content)
    assert note == message
    assert (None if kept is None else len([title for title in kept if title])) == found


def test_a_file_of_ids_alone_has_no_titles(write: WriteFile, tmp_path: Path) -> None:
    items = pd.DataFrame({"item_id": [10]})
    dataset = prepare(write(PAIRS), tmp_path / "out", ALL, items=items)
    says(dataset.manifest.notes["titles"], "items table")


def test_the_column_of_titles_can_be_named(titles: PrepareText) -> None:
    content = "item_id,title,shown_as\n10,x,Ten\n20,y,Twenty\n30,z,Thirty\n"
    note, kept = titles(content, title_column="shown_as")
    says(note, "shown_as", "items.csv", 3, 3)
    assert kept == ["Ten", "Twenty", "Thirty"]


def test_a_column_of_titles_that_cannot_be_meant(titles: PrepareText) -> None:
    content = "item_id,title\n10,Ten\n"
    with raises(InputError, "film", "--title-column"):
        titles(content, title_column="film")
    with raises(SettingError, "title_column", "item_id"):
        titles(content, title_column="item_id")


def test_a_column_of_titles_needs_a_file_of_items(write: WriteFile) -> None:
    refuse(write(PAIRS), "title_column", "name", "--items", error=SettingError, title_column="name")


def test_ids_that_are_text_for_how_they_are_written(prepared: PrepareText) -> None:
    text = "user_id,item_id\n0.0, 5\n1.0, 6\n1.0,-7.00\n2,8\n"
    dataset = prepared(text, protocol="none")
    assert dataset.manifest.notes == {
        "user ids": "kept as text: '0.0' is an integer written as a float (3 rows like it)",
        "item ids": "kept as text: '-7.00' is an integer written as a float "
        "(1 row like it); ' 5' has spaces or invisible characters around it (2 rows like it)",
    }
    assert dataset.users.ids() == ["0.0", "1.0", "2"]
    assert dataset.items.ids() == [" 5", " 6", "-7.00", "8"]


@pytest.mark.parametrize("ids", [("1", "2"), ("v1.0", "v2.0"), ("1.5", "0.25"), ("a b", "c")])
def test_other_ids_are_not_remarked_upon(prepared: PrepareText, ids: tuple[str, str]) -> None:
    first, second = ids
    text = f"user_id,item_id\n{first},{first}\n{second},{second}\n"
    assert prepared(text, protocol="none").manifest.notes == {}


def test_one_user_is_too_few_to_learn_from_or_measure_on(prepared: PrepareText) -> None:
    text = "user_id,item_id,time\n1,10,1\n1,20,2\n1,30,3\n"
    unmeasured = "nothing can be measured: training has none of its items"
    alone = {"training": "nothing can be learned from one user alone"}
    times = {"times": "1 to 3, read as ranks"}
    assert prepared(text, "whole", protocol="none").manifest.notes == alone | times
    both = alone | times | {"validation": unmeasured, "test": unmeasured}
    assert prepared(text).manifest.notes == both
    shared = text + "2,30,1\n2,10,2\n2,20,3\n"
    notes = prepared(shared, "shared", validation="none").manifest.notes
    assert notes == {"times": "1 to 3, read as ranks"}


WEIGHTED = "user_id,item_id,stars,genre,Play Count,time\n" + "".join(
    f"{user},{item},{item},x,7,{item}\n" for user in range(12) for item in range(5)
)
NO_WEIGHTS = (
    "; every row counts as one (--weight-column takes ratings or counts for weights, "
    "--rating-column with --min-rating leaves low ones out)"
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, f"'stars', 'genre', 'Play Count'{NO_WEIGHTS}"),
        ({"min_rating": 1}, f"'genre', 'Play Count'{NO_WEIGHTS}"),
        ({"min_rating": 1, "rating_column": "Play Count", "protocol": "none"},
         f"'stars', 'genre'{NO_WEIGHTS}"),
        ({"columns": ("user_id", "item_id", "-", "genre", "-", "time")}, "'genre'"),
        ({"columns": ("user_id", "item_id", "-", "-", "-", "time")}, None),
    ],
)  # fmt: skip
def test_columns_that_are_not_used_are_said(
    prepared: PrepareText, settings: dict[str, object], message: str | None
) -> None:
    text = WEIGHTED.partition("\n")[2] if "columns" in settings else WEIGHTED
    assert prepared(text, **settings).manifest.notes.get("not used") == message


def test_columns_of_any_file_that_are_not_used_are_said_once(
    write: WriteFile, tmp_path: Path
) -> None:
    sources = [
        write("user_id,item_id,price\n1,2,3\n", "a.csv"),
        write("plays,user_id,item_id,price\n1,2,2,3\n", "b.csv"),
    ]
    notes = prepare(sources, tmp_path / "out", ALL).manifest.notes
    assert notes["not used"] == f"'price', 'plays'{NO_WEIGHTS}"


MARKED = pd.DataFrame(
    {"user_id": ["1.0", "1.0", "2.0"], "item_id": ["x", "y", "x"], "colour": ["red"] * 3}
)


def test_python_gets_the_notes_as_warnings_at_its_call(tmp_path: Path) -> None:
    titles = pd.DataFrame({"item_id": ["x", "y"], "title": ["X", "Y"]})
    calls = (
        lambda: prepare(MARKED, tmp_path / "out", ALL, items=titles),
        lambda: prepare(MARKED, tmp_path / "out", ALL, items=titles),  # the dataset exists
        lambda: open_or_prepare(PrepareRequest.of(MARKED, config=ALL, root=tmp_path)),
        lambda: foretaste.fit("popularity", MARKED),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            call()
        assert [warning.category for warning in given] == [DataWarning] * 2
        assert {warning.filename for warning in given} == {__file__}
        unused, text = (str(warning.message) for warning in given)
        says(unused, "colour")
        says(text, "1.0")


def test_a_column_of_events_is_pointed_at(prepared: PrepareText) -> None:
    notes = prepared("user,item,Event Name\n1,10,view\n2,10,buy\n", protocol="none").manifest.notes
    advice = "--events with --event-column 'Event Name' takes some of its kinds"
    assert notes == {"not used": f"'Event Name'; {advice}"}


def test_titles_in_the_interactions_are_pointed_at(write: WriteFile, tmp_path: Path) -> None:
    orders = write("user,item,Description\n1,10,Ten\n1,20,Twenty\n2,10,Ten\n")
    notes = prepare(orders, tmp_path / "one", ALL).manifest.notes
    says(notes["not used"], "Description", "--items", "Description")
    made = prepare(orders, tmp_path / "two", ALL, items=orders)
    assert "not used" not in made.manifest.notes
    assert made.items.titles() == ["Ten", "Twenty"]


def test_python_is_told_of_rows_that_were_left_out(tmp_path: Path) -> None:
    rows = pd.DataFrame({"user_id": [1, 1, 1, 2, 2, 3], "item_id": [7, 7, 8, 8, 7, None]})
    with pytest.warns(DataWarning) as given:
        prepare(rows, tmp_path / "out", ALL, empty_ids="drop", min_user_interactions=3)
    message = (
        "6 read, 2 kept; left out: 1 with an empty id, 2 of users with too few rows, 1 with a user "
        "and item that are there already"
    )
    assert [str(warning.message) for warning in given][:1] == [f"out: rows: {message}"]
    with warnings.catch_warnings():  # repeated purchases are no loss
        warnings.simplefilter("error")
        foretaste.fit("popularity", rows[:5].astype(int))


def test_a_printed_dataset_has_notes_and_sizes(tmp_path: Path) -> None:
    dataset = prepare(MARKED, tmp_path / "out", ALL, min_item_users=2)
    fitted = foretaste.fit("popularity", MARKED, min_item_users=2)
    for text in (str(dataset), str(fitted)):
        lines = [line.split(maxsplit=2) for line in text.splitlines()]
        assert ["not", "used", "'colour'"] in lines
        assert ["rows", "of", "rare items  1"] in lines
    assert repr(dataset) == f"Dataset({str(tmp_path / 'out')!r}, none)"


def rows(header: str, last: Callable[[int, int], object], users: Iterable[int] = range(5)) -> str:
    """Five items of each of five users, with a column computed from both numbers."""
    pairs = [(user, item) for user in users for item in range(5)]
    return f"{header}\n" + "".join(f"{user},{item},{last(user, item)}\n" for user, item in pairs)


NEXT_MONTH = f"{date.today().replace(day=1) + timedelta(days=40):%Y-%m}"
OUTSIDE = f"lie before 1995 or after {NEXT_MONTH}"
DAYS = "all times are days in the form {}"


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (lambda user, item: item, {"times": "0 to 4, read as ranks"}),
        (lambda user, item: f"2020-01-0{item + 1} 10:00:00", {"times": "2020-01-01 to 2020-01-05"}),
        (lambda user, item: 1_600_000_000 + item * 10**6,
         {"times": "2020-09-13 to 2020-10-29, read as seconds"}),
        (lambda user, item: (1_600_000_000 + user) * 10**9,
         {"times": "2020-09-13 to 2020-09-13, read as nanoseconds"}),
        (lambda user, item: 1_600_000_000 * (1000 if user % 2 else 1) + item,
         {"times": "1600000000 to 1600000000004",
          "units of time": "out.csv, line 7: time '1600000000000' is in milliseconds (column "
          "'time', 10 rows like it), and 15 in seconds: times of several units cannot be put in "
          "order; write all of them in one"}),
        (lambda user, item: f"{1 if user == item == 1 else 2020:04}-01-01",
         {"times": "0001-01-01 to 2020-01-01",
          "unusual times": f"1 of 25 {OUTSIDE}: '0001-01-01', 0001-01-01 (out.csv, line 8)"}),
        (lambda user, item: 1_600_000_000 + (item == 4) * 90_000_000_000,
         {"times": "2020-09-13 to 4872-09-08, read as seconds",
          "unusual times": f"5 of 25 {OUTSIDE}: '91600000000', 4872-09-08 (out.csv, line 6)"}),
        (lambda user, item: [0, 4_070_908_800][item % 2] if user == 3 else 1_600_000_000,
         {"times": "1970-01-01 to 2099-01-01, read as seconds",
          "unusual times": f"5 of 25 {OUTSIDE}: '0', 1970-01-01 (out.csv, line 17) and "
          "'4070908800', 2099-01-01 (out.csv, line 18)"}),
        # FILETIME, which counts from 1601
        (lambda user, item: 133_536_384_000_000_000 + item * 10**7,
         {"times": "1974-03-26 to 1974-03-26, read as nanoseconds",
          "unusual times": f"25 of 25 {OUTSIDE}: '133536384000000000', 1974-03-26 (out.csv, "
          "line 2) and '133536384040000000', 1974-03-26 (out.csv, line 6)"}),
        (lambda user, item: f"2024{item + 1:02}{28 + user % 2}",
         {"times": "20240128 to 20240529, read as ranks", "days": DAYS.format("%Y%m%d")}),
        (lambda user, item: f"{28 + user % 2}{item + 1:02}2024",
         {"times": "28012024 to 29052024, read as ranks", "days": DAYS.format("%d%m%Y")}),
        (lambda user, item: f"0{item + 1}{28 + user % 2}2024",
         {"times": "1282024 to 5292024, read as ranks", "days": DAYS.format("%m%d%Y")}),
        (lambda user, item: f"202413{item + 1:02}",
         {"times": "20241301 to 20241305, read as ranks"}),
    ],
)  # fmt: skip
def test_a_note_has_the_first_and_last_time(
    prepared: PrepareText, time: Callable[[int, int], object], expected: dict[str, str]
) -> None:
    dataset = prepared(rows("user_id,item_id,time", time))
    notes = {
        name: note.partition("; --time-format")[0].replace(f"{dataset.path.parent}/", "")
        for name, note in dataset.manifest.notes.items()
        if "time" in name or name == "days"
    }
    assert notes == expected


def test_unusual_times_that_are_stored_as_times(tmp_path: Path) -> None:
    times = [f"20{20 + number:02}-05-01" for number in range(5)]
    for place, odd, day in (
        (0, "1970-01-01", "1970-01-01"),
        (3, "2199-12-31 23:59", "2199-12-31"),
    ):
        stored = pd.to_datetime([*times[:place], odd, *times[place:]], format="mixed")
        frame = pd.DataFrame({"user_id": [1] * 6, "item_id": range(6), "at": stored})
        frame.to_parquet(tmp_path / "at.parquet")
        where = "at.parquet", f"table, row {place} (the first is 0)"
        for source, name in zip((tmp_path / "at.parquet", frame), where, strict=True):
            dataset = prepare(source, tmp_path / "out", time_column="at", overwrite=True)
            note, _, _ = dataset.manifest.notes["unusual times"].partition("; --time-format")
            assert note == f"1 of 6 {OUTSIDE}: {day} ({name})"


def test_days_that_are_numbers_are_read_by_the_format_that_the_note_names(
    prepared: PrepareText,
) -> None:
    text = rows("user_id,item_id,time", lambda user, item: f"{item + 10}012024")
    assert "%d%m%Y" in prepared(text).manifest.notes["days"]
    with raises(SettingError, "%d%m%Y"):
        prepared(text, "aged", half_life="9d")
    notes = prepared(text, "read", time_format="%d%m%Y", half_life="9d").manifest.notes
    assert notes["times"] == "2024-01-10 to 2024-01-14"


@pytest.mark.parametrize("unit", [10**3, 10**6, 10**9])
def test_each_source_has_its_own_unit(write: WriteFile, tmp_path: Path, unit: int) -> None:
    """A file in milliseconds and events in seconds are often read together."""

    def written(name: str, unit_of_user: Callable[[int], int]) -> Dataset:
        sources = [
            write(
                rows(
                    "user_id,item_id,time",
                    lambda user, item: (1_600_000_000 + user * item) * unit_of_user(user),
                    users,
                ),
                f"{name}-{part}.csv",
            )
            for part, users in enumerate((range(3), range(3, 5), range(5, 6), range(0)))
        ]
        return prepare(sources, tmp_path / name, half_life="1h")

    alike = written("alike", lambda user: 1)
    mixed = written("mixed", lambda user: unit if user < 3 else 1)
    assert mixed.manifest.digest == alike.manifest.digest
    name = {10**3: "milliseconds", 10**6: "microseconds", 10**9: "nanoseconds"}[unit]
    days = ("2020-09-13", "2020-09-13")
    places = (name, "mixed-0.csv", "seconds", "mixed-1.csv", 1)
    says(mixed.manifest.notes["times"], *days, *places)
    says(alike.manifest.notes["times"], *days, "seconds")


def test_what_is_not_read_need_not_be_text(write: WriteFile, tmp_path: Path) -> None:
    lines = [f"u{n % 9},i{n},caf\xe9,{n % 9 - 1},2024-01-0{n % 9 + 1},\xe4,\xe9" for n in range(40)]
    text = "\n".join(["user,item,Bezeichnung,Menge,Tag,event_type,Quantity", *lines, ""])
    source = write(text.encode("latin-1"))
    prepare(source, tmp_path / "out")
    refuse(
        source,
        whole("line 2: is not UTF-8 text; give its encoding with"),
        item_column="Bezeichnung",
    )


def test_long_lists_of_columns_are_cut(write: WriteFile, tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(6)]
    for more, listed in (
        ([], "'c0', 'c1', 'c2', 'c3', 'c4', 'c5'"),
        (["c6"], "'c0', 'c1', 'c2', 'c3', 'c4' and 2 more"),
    ):
        header = ",".join(["user", "item", *names, *more])
        source = write(f"{header}\n" + ",".join(map(str, range(header.count(",") + 1))) + "\n")
        notes = prepare(source, tmp_path / "out", ALL, items=source, overwrite=True).manifest.notes
        assert notes["not used"] == listed


def test_warnings_name_the_arguments_of_python(write: WriteFile, tmp_path: Path) -> None:
    text = rows("user,item,rating,event", lambda user, item: f"{item},view")
    with pytest.warns(DataWarning) as given:
        prepare(write(text), tmp_path / "out")
    says(
        given[0].message,
        "weight_column",
        "rating_column with min_rating",
        "events with event_column event",
    )
    assert "--" not in str(given[0].message)


def test_ids_that_a_spreadsheet_rounded(prepared: PrepareText) -> None:
    text = "user_id,item_id\n1,9.06E+17\n1,9.06E+17\n2,1E+20\n2,A5E+3\n3,85E10\n"
    assert prepared(text, protocol="none").manifest.notes == {
        "item ids": "kept as text: '1E+20' is rounded, as spreadsheets round long numbers: "
        "different ids have become one; export them as text (3 rows like it)"
    }


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("Invoice,StockCode,Description,Quantity,InvoiceDate,Price,Customer ID,Country",
         ("Customer ID", "StockCode", "InvoiceDate")),
        ("timestamp,visitorid,event,itemid,transactionid", ("visitorid", "itemid", "timestamp")),
        ("event_time,event_type,product_id,category_id,brand,price,user_id,user_session",
         ("user_id", "product_id", "event_time")),
        ("reviewerID,asin,reviewerName,reviewText,overall,unixReviewTime,reviewTime",
         ("reviewerID", "asin", "unixReviewTime")),
    ],
)  # fmt: skip
def test_columns_with_the_names_of_real_exports(
    prepared: PrepareText, header: str, columns: tuple[str, str, str]
) -> None:
    names = header.split(",")
    lines = [
        ",".join(str(n if name in columns[:2] else n % 7) for name in names) for n in range(20)
    ]
    found = prepared("\n".join([header, *lines]), protocol="temporal").manifest.columns
    assert tuple(found[role] for role in ("user_id", "item_id", "time")) == columns

"""Times of one form keep their order to the microsecond; other values are refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretaste.data import PrepareConfig, prepare
from foretaste.data.config import FileFormat
from foretaste.data.preparation.duckdb_engine import DuckDBEngine
from foretaste.data.preparation.reading import read_raw
from foretaste.data.sources import open_sources
from foretaste.errors import InputError, SettingError
from tests.data.conftest import WriteFile, refuse
from tests.data.test_protocols import pairs_of

COLUMNS = {"user_id": "user", "item_id": "item", "time": "time"}
BILLION = 10**9
few = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Nanoseconds since 1970: near today, when seconds have ten digits, and close to each other.
nanos = st.one_of(
    st.integers(1_700_000_000 * BILLION, 1_700_000_001 * BILLION),
    st.integers(-2 * BILLION, 2 * BILLION),
    st.integers(-9_000_000_000 * BILLION, 9_000_000_000 * BILLION),
)
moments = st.lists(nanos.flatmap(lambda at: st.sampled_from([at, at + 1, at - 1])), min_size=2)


def ranks(values: Sequence[Any]) -> list[int]:
    """The rank of each value among the distinct values, in order."""
    return [sorted(set(values)).index(value) for value in values]


@cache
def engine() -> DuckDBEngine:
    """One engine for all tests: another one takes longer than to read some times."""
    return DuckDBEngine(Path("unused"), "1GB", 1)


def read_times(source: Any, time_format: str | None = None) -> list[Any]:
    """The compared times of a source, in the order of its items."""
    opened = open_sources(source, FileFormat())
    sources = [found.reading(COLUMNS.values()) for found in opened]
    engine().run("DROP TABLE IF EXISTS raw")
    read_raw(engine(), sources, COLUMNS, PrepareConfig(), time_format=time_format)
    return [time for (time,) in engine().run("SELECT time FROM raw ORDER BY item_id")]


def frame(times: Any) -> pa.Table:
    return pa.table({"user": [1] * len(times), "item": range(len(times)), "time": times})


def as_csv(texts: Sequence[str]) -> str:
    rows = "".join(f'1,{item},"{text}"\n' for item, text in enumerate(texts))
    return f"user,item,time\n{rows}"


def cut_to_micros(at: Sequence[int]) -> list[int]:
    return [moment // 1000 for moment in at]


def rounded_to_micros(at: Sequence[int]) -> list[int]:
    return [(abs(moment) + 500) // 1000 * (-1 if moment < 0 else 1) for moment in at]


def iso(at: int, decimals: int = 9, offset_minutes: int | None = None, gap: str = "") -> str:
    """A time as text, cut to some decimals, with the given UTC offset."""
    seconds, fraction = divmod(at, BILLION)
    local = datetime.datetime(1970, 1, 1) + datetime.timedelta(
        seconds=seconds, minutes=offset_minutes or 0
    )
    text = local.isoformat(sep=" ") + f".{fraction:09}"[: decimals + 1 if decimals else 0]
    if offset_minutes is None:
        return text
    hours, minutes = divmod(abs(offset_minutes), 60)
    return f"{text}{gap}{'-' if offset_minutes < 0 else '+'}{hours:02}:{minutes:02}"


@few
@given(at=moments, decimals=st.integers(0, 9))
def test_dates_and_times(write: WriteFile, at: list[int], decimals: int) -> None:
    texts = [iso(moment, decimals) for moment in at]
    cut = [moment // 10 ** (9 - min(decimals, 6)) for moment in at]
    assert ranks(read_times(write(as_csv(texts)))) == ranks(cut)


@few
@given(
    at=moments,
    offsets=st.lists(st.integers(-14 * 4, 14 * 4), min_size=1),
    gap=st.sampled_from(["", " "]),
)
def test_times_with_offsets(write: WriteFile, at: list[int], offsets: list[int], gap: str) -> None:
    texts = [
        iso(moment, 9, 15 * offsets[place % len(offsets)], gap) for place, moment in enumerate(at)
    ]
    assert ranks(read_times(write(as_csv(texts)))) == ranks(cut_to_micros(at))


@few
@given(moments)
def test_integers(write: WriteFile, at: list[int]) -> None:
    """Integers are exact, also in nanoseconds, which have more digits than floating point."""
    lines = [f'{{"user": 1, "item": {item}, "time": {time}}}\n' for item, time in enumerate(at)]
    decimals = pa.array(list(map(Decimal, at)), pa.decimal128(38, 0))
    for source in (
        write(as_csv(list(map(str, at)))),
        write("".join(lines), "raw.jsonl"),
        frame(pa.array(at)),
        frame(decimals),
    ):
        assert read_times(source) == at


def in_seconds(at: int) -> str:
    return f"{Decimal(at) / BILLION:.9f}"


def in_tens(at: int) -> str:
    """Numbers with more digits than a 64-bit integer are compared too."""
    return str(at * 10 + 3)


def now_and_then_in_half(at: int) -> str:
    return f"{at}.5" if at % 3 == 0 else str(at)


@few
@given(at=moments, written=st.sampled_from([in_seconds, in_tens, now_and_then_in_half]))
def test_other_numbers(write: WriteFile, at: list[int], written: Callable[[int], str]) -> None:
    """Floating point may be text, JSON lines or decimals of Arrow."""
    texts = [*map(written, at), "0.5"]
    lines = [f'{{"user": 1, "item": {item}, "time": {text}}}\n' for item, text in enumerate(texts)]
    decimals = frame(pa.array(list(map(Decimal, texts)), pa.decimal128(38, 9)))
    for source in (write(as_csv(texts)), write("".join(lines), "raw.jsonl"), decimals):
        assert read_times(source) == list(map(float, texts))


@few
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_floating_point_numbers(write: WriteFile, at: list[float]) -> None:
    expected = ranks(at)
    assert ranks(read_times(write(as_csv(list(map(repr, at)))))) == expected
    assert ranks(read_times(frame(at))) == expected


@few
@given(
    at=moments,
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Asia/Tokyo", "-03:30"]),
)
def test_stored_times(tmp_path: Path, at: list[int], unit: str, zone: str | None) -> None:
    stored = [moment // {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit] for moment in at]
    expected = rounded_to_micros(at) if unit == "ns" else stored
    table = frame(pa.array(stored, pa.timestamp(unit, zone)))  # type: ignore[call-overload]
    for place, source in enumerate((table, table.to_pandas(), tmp_path / "x.parquet")):
        if place == 2:
            pq.write_table(table, source)
        assert ranks(read_times(source)) == ranks(expected)


@few
@given(moments)
def test_times_stored_by_old_versions_of_spark(tmp_path: Path, at: list[int]) -> None:
    table = frame(pa.array(at, pa.timestamp("ns")))
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    assert read_times(tmp_path / "x.parquet") == cut_to_micros(at)


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.decimal128(38, 0), pa.decimal128(38, 9), pa.decimal256(60, 2)]
)
def test_stored_numbers_of_many_digits(kind: pa.DataType) -> None:
    stored = [2**64 - 1, 2**63, 5, 2**62]
    values = stored if kind == pa.uint64() else list(map(Decimal, stored))
    assert read_times(frame(pa.array(values, kind))) == list(map(float, stored))


def test_numbers_stored_as_several_types(tmp_path: Path) -> None:
    pq.write_table(frame(pa.array([2**62, 7])), tmp_path / "a.parquet")
    later = frame(pa.array([0.5, float(2**62)])).set_column(1, "item", pa.array([2, 3]))
    pq.write_table(later, tmp_path / "b.parquet")
    times = read_times([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert times == [2.0**62, 7.0, 0.5, 2.0**62]


def test_zones_by_name_and_spaces_at_the_end(write: WriteFile) -> None:
    zoned = [
        "2024-10-27 03:00:00+0230",
        "2024-10-27 00:00:01 UTC",
        "2024-10-27 01:00:00.5+01 ",
        "2024-10-27 00:00:00Z",
        "2024-10-27 01:59:59 Europe/Berlin",
    ]
    assert ranks(read_times(write(as_csv(zoned)))) == [4, 3, 2, 1, 0]
    plain = ["2024-10-27 10:00:00 ", "2024-10-27 10:00:00.5 ", "2024-10-27", "2024-10-27T10:00"]
    assert ranks(read_times(write(as_csv(plain)))) == [1, 2, 0, 1]


@pytest.mark.parametrize(
    ("first", "odd"),
    [
        ("978300760", "2020-12-31"),
        ("2020-12-31", "978300760"),
        ("2024-10-27 02:30:00+02:00", "2024-10-27 02:10:00"),
        ("2024-10-27 02:10:00", "2024-10-27T02:30:00Z"),
        ("2024-10-27 02:10:00", "2024-10-27 02:30:00.5 -0200"),
        ("2024-10-27", "2024-10-27 02:30:00+02"),
        ("2024-10-27 02:10:00", "2024-10-27 02:10:00 PM"),
        ("2024-10-27 02:10:00 GMT", "2024-10-27 02:10:00 BST"),
        ("2024-10-27 02:10:00Z", "soon"),
        ("5", "1" * 400),
        *(("2020-01-01", time) for time in ("infinity", "294248-01-01", "now")),
    ],
)
def test_times_that_cannot_be_compared(write: WriteFile, first: str, odd: str) -> None:
    source = write(as_csv([first] * 3 + [odd, first, odd]))
    refuse(source, "raw.csv", 5, odd[:200], 2)


@pytest.mark.parametrize("odd", ["2024-05-01 10:00:00", "1700000000"])
def test_times_of_two_kinds_in_one_file(write: WriteFile, odd: str) -> None:
    rows = "".join(f"1,{item},2024-05-0{item} 10:00:00+02:00\n" for item in (1, 2, 3))
    source = write(f"user_id,item_id,time\n{rows}1,4,{odd}\n")
    refuse(source, 5, odd)


def test_files_with_and_without_a_time_zone(write: WriteFile) -> None:
    zoned = frame(pa.array([1, 2, 3], pa.timestamp("us", "UTC")))
    plain = write(as_csv(["2024-10-27 02:10:00"]))
    refuse([zoned, plain], "raw.csv", 2)
    refuse([plain, zoned], "raw.csv", 2)


FORMATS = [
    ("%d/%m/%Y", ["31/12/2020", "01/02/2021", "2/1/2021"], [0, 2, 1]),
    ("%m/%d/%Y %I:%M %p", ["12/31/2020 1:00 PM", "12/31/2020 12:30 AM"], [1, 0]),
    ("%Y%m%d", ["20201231", "20210101", "20190101"], [1, 2, 0]),
    ("%d.%m.%Y %H:%M:%S.%n", ["01.01.2021 10:00:00.000002789", "01.01.2021 10:00:00.000001788"],
     [1, 0]),
    ("%H:%M:%S.%n %z %d.%m.%Y", ["10:00:00.000001 +0100 01.01.2021", "09:00:00.000000001 +0000 "
     "01.01.2021"], [1, 0]),
    ("%d/%b/%Y:%H:%M:%S %z", ["27/Oct/2024:02:30:00 +0200", "27/Oct/2024:02:10:00 +0100"], [0, 1]),
    ("%Y-%m-%d %H:%M:%S,%g", ["2024-10-27 02:30:00,120", "2024-10-27 02:30:00,119"], [1, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("format", "texts", "expected"), FORMATS)
def test_times_of_a_format_of_their_own(
    write: WriteFile, format: str, texts: list[str], expected: list[int]
) -> None:
    assert ranks(read_times(write(as_csv(texts)), format)) == expected
    assert ranks(read_times(frame(texts), format)) == expected
    lines = [json.dumps({"user": 1, "item": item, "time": text}) for item, text in enumerate(texts)]
    assert ranks(read_times(write("\n".join(lines), "x.jsonl"), format)) == expected


BEGIN = datetime.datetime(2024, 2, 1, 10, 5, 9)
# Spellings of a date and a clock, and the format that reads all times of the column.
FORMS = [
    # of shops and spreadsheets
    ("%m/%d/%Y %H:%M", None),
    ("%d/%m/%Y %H:%M:%S", None),
    ("%d.%m.%Y %H:%M", None),
    ("%d-%m-%Y %H:%M", None),
    ("%m/%d/%Y %I:%M %p", None),
    ("%m/%d/%Y %I:%M:%S %p", None),
    ("%d.%m.%Y %H:%M:%S.%f", "%d.%m.%Y %H:%M:%S.%n"),
    ("%d/%m/%Y %H:%M:%S +0200", "%d/%m/%Y %H:%M:%S %z"),
    ("%d/%m/%Y, %H:%M:%S", None),
    ("%d/%m/%y %H:%M", None),
    ("%H:%M:%S %d/%m/%Y", None),
    ("%m/%d/%Y", None),
    ("%d.%m.%y", None),
    # year first, which are no ISO 8601
    ("%Y.%m.%d", None),
    ("%Y.%m.%d %H:%M:%S", None),
    ("%Y-%m-%d_%H:%M:%S", None),
    ("%Y-%m-%d %H:%M:%S,123", "%Y-%m-%d %H:%M:%S,%n"),
    ("%Y-%m-%d %I:%M %p", None),
    ("%Y%m%dT%H%M%S", None),
    ("%Y%m%dT%H%M%SZ", None),
    ("%Y%m%d %H:%M", None),
    ("%Y年%m月%d日 %H:%M", None),
    # with names
    ("%d-%b-%Y", None),
    ("%d-%b-%Y %H:%M:%S", None),
    ("%b %d, %Y", None),
    ("%B %d, %Y %I:%M %p", None),
    ("%A, %d %B %Y %H:%M", None),
    # of logs and mails
    ("%a, %d %b %Y %H:%M:%S +0000", "%a, %d %b %Y %H:%M:%S %z"),
    ("%a, %d %b %Y %H:%M:%S GMT", "%a, %d %b %Y %H:%M:%S %Z"),
    ("%d/%b/%Y:%H:%M:%S +0000", "%d/%b/%Y:%H:%M:%S %z"),
    ("%a %b %d %H:%M:%S +0000 %Y", "%a %b %d %H:%M:%S %z %Y"),
    ("%a %b %d %H:%M:%S %Y", None),
]


@pytest.mark.parametrize(("form", "format"), FORMS)
def test_a_refused_form_is_met_with_the_format_that_reads_the_whole_column(
    write: WriteFile, form: str, format: str | None
) -> None:
    """The column has enough days to tell the month from the day."""
    moments = [BEGIN + datetime.timedelta(hours=37 * number) for number in range(60)]
    texts = [moment.strftime(form) for moment in moments]
    source = write(as_csv(texts))
    with pytest.raises(InputError) as error:
        read_times(source)
    says = "; --time-format (time_format=... in Python) says how dates are written: "
    before, _, formats = str(error.value).partition(says)
    assert f"time '{texts[0]}' does not fit: times are all numbers, all dates such" in before
    # Two digits may be the day or the year if no day is above 31.
    assert formats.startswith(repr(format or form))
    assert formats.endswith(" reads all of them") or "%y" in form
    assert ranks(read_times(source, format or form)) == ranks(
        [moment.date() if "%H" not in form and "%I" not in form else moment for moment in moments]
    )


def test_the_advice_is_the_same_if_another_format_was_given(write: WriteFile) -> None:
    source, form = write(as_csv(["12/1/2010 8:26", "1/2/2011 10:00"])), "%d/%m/%Y %H:%M"
    refuse(source, "%d", form, "%m/%d/%Y %H:%M", time_format="%d")


def test_a_format_that_is_not_known_by_one_value_is_known_by_the_column(write: WriteFile) -> None:
    """Online Retail's first date is the first of December, and looks like January's 12th."""
    refuse(write(as_csv(["12/1/2010 8:26", "1/2/2011 10:00"])), "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")
    source = write(as_csv(["12/1/2010 8:26", "12/31/2010 10:00", "1/2/2011 10:00"]))
    refuse(source, "%m/%d/%Y %H:%M")
    sources = [write(as_csv(["12/1/2010 8:26"])), write(as_csv(["1/13/2011 8:26"]), "b.csv")]
    refuse(sources, "%m/%d/%Y %H:%M")
    for odd in ("13/13/2010 8:26", "soon"):
        refuse(write(as_csv(["12/1/2010 8:26", odd])), "%d/%m/%Y %H:%M")


CLOCKS = "user,item,date,time\n1,7,{0},01:21:05\n1,8,{0},09:58:11\n1,9,{1},00:21:05\n"


@pytest.mark.parametrize(
    ("days", "format"),
    [
        (("2016-10-30", "2016-10-31"), None),
        (("30/10/2016", "31/10/2016"), "%d/%m/%Y %H:%M:%S"),
        (("20161030", "20161031"), "%Y%m%d %H:%M:%S"),
    ],
)
def test_a_date_and_a_clock_in_two_columns(
    write: WriteFile, tmp_path: Path, days: tuple[str, str], format: str | None
) -> None:
    source = write(CLOCKS.format(*days))
    refuse(source, "raw.csv", 2, "01:21:05", "time", 3, "--time-column date time")
    if format is not None:
        refuse(source, format, time_column=["date", "time"])
    dataset = prepare(source, tmp_path / "out", time_column=["date", "time"], time_format=format)
    assert pairs_of(dataset, "test") == {(1, 9)}
    assert pairs_of(dataset, "validation") == {(1, 8)}
    assert dataset.manifest.columns == {
        "user_id": "user", "item_id": "item", "time": "date", "clock": "time"
    }  # fmt: skip
    assert dataset.manifest.notes["times"] == "2016-10-30 to 2016-10-31"
    again = prepare(source, time_column=("date", "time"), time_format=format, output=dataset.path)
    assert again.manifest == dataset.manifest


def test_dates_and_clocks_that_are_no_text(tmp_path: Path) -> None:
    """Frames and Parquet have dates with midnights, and clocks of their own type."""
    days = [datetime.datetime(2024, 2, day) for day in (1, 2, 1)]
    clocks = [datetime.time(23, 59), datetime.time(0, 0, 1), datetime.time(12)]
    rows = {"user": [1, 1, 1], "item": [1, 2, 3]}
    for kind in (pa.date32(), pa.timestamp("us")):
        table = pa.table(rows | {"date": pa.array(days, kind), "clock": clocks})
        pq.write_table(table, tmp_path / "x.parquet")
        for source in (table, table.to_pandas(), tmp_path / "x.parquet"):
            dataset = prepare(
                source, tmp_path / "out", time_column=("date", "clock"), overwrite=True
            )
            assert pairs_of(dataset, "test") == {(1, 2)}
            assert pairs_of(dataset, "validation") == {(1, 1)}


def test_columns_of_dates_and_clocks_that_cannot_be(write: WriteFile) -> None:
    source = write(CLOCKS.format("2016-10-30", "2016-10-31"))
    refuse(source, "hour", "--time-column", time_column=["date", "hour"])
    three = ["date", "time", "user"]
    refuse(source, "time_column", "date time user", error=SettingError, time_column=three)
    refuse(source, "date", error=SettingError, time_column=["date", "date"])
    odd = write(CLOCKS.format("2016-10-30", "soon"), "odd.csv")
    refuse(odd, "odd.csv", 4, "soon 00:21:05", time_column=["date", "time"])
    assert PrepareConfig(time_column=["date"]) == PrepareConfig(time_column="date")  # type: ignore[arg-type]


def test_a_frame_of_objects_that_mixes_times_with_an_offset_and_without(tmp_path: Path) -> None:
    """Arrow takes times without an offset for UTC: 10:00 in New York came after 12:00 of an unknown
    zone."""
    zone = datetime.timezone(datetime.timedelta(hours=-5))
    aware, naive = BEGIN.replace(tzinfo=zone), BEGIN
    for times in ([aware, pd.NaT, naive], [None, naive, aware], [aware, aware, naive]):
        table = pd.DataFrame({"user": [1] * 3, "item": range(3), "time": times}, dtype=object)
        table = table.astype({"user": int, "item": int})
        row = times.index(naive)
        refuse(table, "time", row, 0, times.index(aware), "to_datetime")
        kept = table[table["time"].map(lambda time: isinstance(time, datetime.datetime))]
        for alike in (kept.assign(time=aware), kept.assign(time=naive)):
            prepare(
                alike.astype({"time": object}), tmp_path / "out", protocol="none", overwrite=True
            )


def test_times_that_are_not_of_the_format(write: WriteFile) -> None:
    for odd in ("2020-12-31", "infinity", "epoch", "31/12/2020 10:00"):
        source = write(as_csv(["31/12/2020", odd]))
        refuse(source, 3, odd, "%d/%m/%Y", "time", 1, time_format="%d/%m/%Y")


def test_formats_that_cannot_be(write: WriteFile) -> None:
    source = write(as_csv(["31/12/2020"]))
    for format in ("%Q", "", "%d/%m/%"):
        refuse(source, "time_format", format, error=SettingError, time_format=format)
    refuse(frame([1, 2, 3]), "time", "table", "int64", error=SettingError, time_format="%d/%m/%Y")


def test_a_format_without_times(write: WriteFile) -> None:
    refuse(write("user,item\n1,2\n"), "--time-column", error=SettingError, time_format="%d/%m/%Y")

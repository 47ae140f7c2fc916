"""Times of one form keep their order, to the microsecond; what is no time is refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

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

COLUMNS = {"user_id": "user", "item_id": "item", "time": "time"}
BILLION = 10**9
few = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Nanoseconds since 1970: around now, where seconds have ten digits, and close to each other.
nanos = st.one_of(
    st.integers(1_700_000_000 * BILLION, 1_700_000_001 * BILLION),
    st.integers(-2 * BILLION, 2 * BILLION),
    st.integers(-9_000_000_000 * BILLION, 9_000_000_000 * BILLION),
)
moments = st.lists(nanos.flatmap(lambda at: st.sampled_from([at, at + 1, at - 1])), min_size=2)


def ranks(values: Sequence[Any]) -> list[int]:
    """The rank of each value among the distinct ones, in order."""
    return [sorted(set(values)).index(value) for value in values]


def read_times(source: Any, time_format: str | None = None) -> list[Any]:
    """The times of a source as they are compared, in the order of its items."""
    opened = open_sources(source, FileFormat())
    sources = [found.reading(COLUMNS.values()) for found in opened]
    with DuckDBEngine(Path("unused"), "1GB", 1) as engine:
        read_raw(engine, sources, COLUMNS, time_format)
        return [time for (time,) in engine.run("SELECT time FROM raw ORDER BY item_id")]


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
    """A time as text, cut to some decimals, with the offset it is written for."""
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
    """Exactly, also those in nanoseconds: of more digits than floating point has."""
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
    """Of more digits than a 64-bit integer has."""
    return str(at * 10 + 3)


def now_and_then_in_half(at: int) -> str:
    return f"{at}.5" if at % 3 == 0 else str(at)


@few
@given(at=moments, written=st.sampled_from([in_seconds, in_tens, now_and_then_in_half]))
def test_other_numbers(write: WriteFile, at: list[int], written: Callable[[int], str]) -> None:
    """As floating point: as text, in JSON lines and as decimals of Arrow."""
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
def test_times_as_old_versions_of_spark_store_them(tmp_path: Path, at: list[int]) -> None:
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
    where = rf"raw\.csv, line 5: time '{odd.replace('+', '[+]')[:200]}.*"
    refuse(source, rf"{where} does not fit: times are all .* 2 rows like it\)")


def test_files_with_and_without_a_time_zone(write: WriteFile) -> None:
    zoned = frame(pa.array([1, 2, 3], pa.timestamp("us", "UTC")))
    plain = write(as_csv(["2024-10-27 02:10:00"]))
    refuse([zoned, plain], r"raw\.csv, line 2: time .* does not fit")
    refuse([plain, zoned], r"raw\.csv, line 2: time .* does not fit")


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


@pytest.mark.parametrize(
    ("date", "format"),
    [
        ("01/02/2020", "%d/%m/%Y"),
        ("31.12.2020", "%d.%m.%Y"),
        ("12/31/2020", "%m/%d/%Y"),
        ("31.12.20", "%d.%m.%y"),
    ],
)
def test_dates_in_other_orders_are_met_with_the_option_that_reads_them(
    write: WriteFile, tmp_path: Path, date: str, format: str
) -> None:
    source = write(as_csv([date] * 8))
    with pytest.raises(InputError) as error:
        prepare(source, tmp_path / "out")
    text = str(error.value)
    assert text.startswith(f"{source}, line 2: time '{date}' does not fit: times are all numbers")
    says = "--time-format (time_format=... in Python) says how dates are written, such as"
    assert text.endswith(f"; {says} '{format}'")
    read = prepare(source, tmp_path / "out", PrepareConfig(time_format=format))
    assert read.manifest.config["time_format"] == format


def test_times_that_are_not_of_the_format(write: WriteFile) -> None:
    for odd in ("2020-12-31", "infinity", "epoch", "31/12/2020 10:00"):
        source = write(as_csv(["31/12/2020", odd]))
        message = rf"line 3: time '{odd}' is not written as '%d/%m/%Y' says \(column 'time', 1 row"
        refuse(source, message, time_format="%d/%m/%Y")


def test_formats_that_cannot_be(write: WriteFile) -> None:
    source = write(as_csv(["31/12/2020"]))
    for format in ("%Q", "", "%d/%m/%"):
        message = r"time_format is .*; it must be one as strptime"
        refuse(source, message, SettingError, time_format=format)
    message = "column 'time' of table is of type int64; leave it out"
    refuse(frame([1, 2, 3]), message, SettingError, time_format="%d/%m/%Y")


def test_a_format_where_no_times_are_read(write: WriteFile) -> None:
    source = write(as_csv(["31/12/2020"]))
    for protocol in ("held-out-users", "none"):
        message = f"no times are read: protocol {protocol} needs none"
        refuse(source, message, SettingError, time_format="%d/%m/%Y", protocol=protocol)
    message = "there is no time column; name one with --time-column"
    refuse(write("user,item\n1,2\n"), message, SettingError, time_format="%d/%m/%Y")

"""One input gives one dataset, in any format, order of rows and machine."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import (
    Dataset,
    GenerateConfig,
    PrepareConfig,
    generate,
    open_dataset,
    open_or_prepare,
    preparation,
    prepare,
)
from foretaste.data.manifest import FILE_NAME
from foretaste.data.request import PrepareRequest
from foretaste.errors import DatasetError, InputError, SettingError
from tests.data.conftest import PrepareText, WriteFile, refuse
from tests.messages import Named, raises, says

PROTOCOLS = ["leave-one-out", "held-out-users", "temporal", "none"]
SMALL = GenerateConfig(num_users=300, num_items=120, num_interactions=6_000)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return generate(SMALL).table


def file_bytes(dataset: Dataset) -> dict[str, bytes]:
    return {name: (dataset.path / name).read_bytes() for name in dataset.manifest.parts}


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    order = list(range(table.num_rows))
    random.Random(seed).shuffle(order)
    return table.take(order)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_row_order_threads_and_memory_change_no_byte(
    table: pa.Table, tmp_path: Path, protocol: str
) -> None:
    def prepared(name: str, source: pa.Table, **resources: object) -> dict[str, bytes]:
        config = PrepareConfig(protocol=protocol, **resources)  # type: ignore[arg-type]
        return file_bytes(prepare(source, tmp_path / name, config))

    plain = prepared("plain", table)
    assert prepared("shuffled", shuffled(table, 1), threads=1) == plain
    assert prepared("again", shuffled(table, 2), threads=4, memory_limit="300MB") == plain


def test_more_rows_than_a_row_group_stay_sorted(tmp_path: Path) -> None:
    large = generate(GenerateConfig(num_users=4_000, num_items=900, num_interactions=300_000)).table
    plain = prepare(large, tmp_path / "plain")
    again = prepare(shuffled(large, 1), tmp_path / "again", PrepareConfig(threads=4))
    assert file_bytes(again) == file_bytes(plain)
    assert plain.train.num_interactions == 300_000 - 8_000


def test_settings_may_be_given_by_name(table: pa.Table, tmp_path: Path) -> None:
    renamed = table.rename_columns(["u", *table.column_names[1:]])
    settings = PrepareConfig(user_column="u", protocol="temporal")
    expected = prepare(renamed, tmp_path / "config", settings)
    by_name = prepare(renamed, tmp_path / "name", user_column="u", protocol="temporal")
    assert by_name.manifest.config == expected.manifest.config
    assert file_bytes(by_name) == file_bytes(expected)
    seeded = prepare(renamed, tmp_path / "both", settings, seed=3)
    assert seeded.manifest.config == {**expected.manifest.config, "seed": 3}


def test_parts_are_sorted_int32_pairs(table: pa.Table, tmp_path: Path) -> None:
    dataset = prepare(table, tmp_path / "out")
    schema = pq.read_schema(dataset.path / "train.parquet")
    assert schema.names == ["user_index", "item_index", "position"]
    assert schema.types == [pa.int32(), pa.int32(), pa.int32()]
    train = pq.read_table(dataset.path / "train.parquet").to_pylist()
    assert train == sorted(train, key=lambda row: (row["user_index"], row["item_index"]))
    assert sorted(path.name for path in dataset.path.iterdir()) == [
        "items.parquet", FILE_NAME, "test.parquet", "train.parquet", "users.parquet",
        "validation.parquet",
    ]  # fmt: skip


def test_columns_named_by_option(prepared: PrepareText) -> None:
    dataset = prepared(
        "user_id,who,what,stars,at\nx,1,5,1,3\ny,1,6,5,2\nz,1,7,5,1\nz,2,7,5,1\nz,2,8,5,1\n",
        user_column="who",
        item_column="what",
        rating_column="stars",
        time_column="at",
        min_rating=2,
        protocol="none",
    )
    assert dataset.users.ids() == [1, 2]
    assert dataset.items.ids() == [6, 7, 8]
    assert dataset.manifest.columns == {
        "user_id": "who",
        "item_id": "what",
        "rating": "stars",
        "time": "at",
    }


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["10", "9", "-1"], [-1, 9, 10]),
        (["10", "9", "007"], ["007", "10", "9"]),
        (["77.5", "9", "1e2"], ["1e2", "77.5", "9"]),
        (["9007199254740993", "2", "1"], [1, 2, 9007199254740993]),
        (["9223372036854775808", "2", "1"], ["1", "2", "9223372036854775808"]),
        (["-0", "1", "2"], ["-0", "1", "2"]),
        (["NULL", "nan", "1"], ["1", "NULL", "nan"]),
    ],
)
def test_ids_are_integers_only_if_all_of_them_are(
    prepared: PrepareText, ids: list[str], expected: list[int | str]
) -> None:
    dataset = prepared("user_id,item_id\n" + "".join(f"{value},1\n" for value in ids),
                       protocol="none")  # fmt: skip
    assert dataset.users.ids() == expected
    assert dataset.manifest.id_types["user_id"] == (
        "integer" if isinstance(expected[0], int) else "text"
    )


def test_a_column_named_for_one_thing_is_not_taken_for_another(prepared: PrepareText) -> None:
    dataset = prepared("user,date,score\n1,5,3\n1,6,3\n", item_column="date", protocol="none")
    assert dataset.items.ids() == [5, 6]
    assert dataset.manifest.columns == {"user_id": "user", "item_id": "date"}


def test_an_id_that_is_text_far_down_the_file(prepared: PrepareText) -> None:
    rows = "".join(f"{n},1\n" for n in range(3_000))
    dataset = prepared(f"user_id,item_id\n{rows}007,1\n", protocol="none")
    assert len(dataset.users) == 3_001
    assert dataset.users.lookup(["007", "7"]).min() >= 0


def test_types_of_ids_may_be_said(prepared: PrepareText, table: pa.Table, tmp_path: Path) -> None:
    kept = prepared("user_id,item_id\n10,1\n9,2\n", protocol="none", item_id_type="text")
    assert (kept.users.ids(), kept.items.ids()) == ([9, 10], ["1", "2"])
    with raises(InputError, 3, "user_id", "007", "--like"):
        prepared("user_id,item_id\n10,1\n007,2\n", "other", user_id_type="integer")
    frame = prepare(table, tmp_path / "frame", protocol="none", user_id_type="text")
    assert {*map(type, frame.users.ids())} == {str}


def test_ids_take_the_types_of_another_dataset(
    write: WriteFile, prepared: PrepareText, tmp_path: Path
) -> None:
    """A run has the same tables of ids."""
    integers = prepared("user_id,item_id\n10,1\n9,2\n", "integers", protocol="none").path
    text = prepared("user_id,item_id\na,b\nc,d\n", "text", protocol="none").path
    more = write("user_id,item_id\n7,zzz\n", "more.csv")
    source = tmp_path / "integers.csv"
    refuse([source, more], "more.csv", 2, "item_id", "zzz", like=integers, protocol="none")
    again = prepare([source], tmp_path / "all", like=text, protocol="none")
    assert again.manifest.id_types == {"user_id": "text", "item_id": "text"}
    own = prepare([source], tmp_path / "own", like=text, protocol="none", user_id_type="integer")
    assert own.manifest.id_types == {"user_id": "integer", "item_id": "text"}
    refuse(source, "like", "nope", error=SettingError, like=tmp_path / "nope")


def test_frames_of_text_and_categories(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": ["b", "a", "a"], "item": pd.Categorical(["x", "x", "y"])})
    dataset = prepare(frame, tmp_path / "out", PrepareConfig(protocol="none"))
    assert (dataset.users.ids(), dataset.items.ids()) == (["a", "b"], ["x", "y"])
    assert dataset.train.item_index.tolist() == [0, 1, 0]


def test_titles_come_from_a_file_of_items(write: WriteFile, tmp_path: Path) -> None:
    source = write("user_id,item_id\n1,10\n1,20\n2,30\n")
    items = write(
        'movieId,Name,item_code,id\n10,Ten,a,q\n30,"Thirty, or so",,q\n99,Never,b,q\n', "items.csv"
    )
    dataset = prepare(source, tmp_path / "out", PrepareConfig(protocol="none"), items=items)
    assert dataset.items.titles() == ["Ten", None, "Thirty, or so"]
    assert dataset.items.column("item_code") == ["a", None, None]
    assert dataset.items.table.column_names == ["id", "title", "item_code"]
    assert [entry["holds"] for entry in dataset.manifest.source] == ["interactions", "items"]


def test_a_file_of_other_items_is_refused(write: WriteFile) -> None:
    source = write("user_id,item_id\n1,10\n1,20\n")
    items = write("item_id,title\n10.0,Ten\n20.0,Twenty\n", "items.csv")
    refuse(source, "10.0", 10, protocol="none", items=items)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (
            "title,year\na,1\n",
            ("item_id", "--item-column"),
        ),
        ("item_id,itemId\n1,2\n", ("item_id", "--item-column")),
        ("item,name,Name\n1,a,b\n", ("--title-column",)),
        (b"item,title\n1,caf\xe9\n", (2, "--encoding")),
    ],
)
def test_files_of_items_that_cannot_be_used(
    write: WriteFile, content: str | bytes, named: Named
) -> None:
    source, items = write("user_id,item_id\n1,1\n"), write(content, "items.csv")
    refuse(source, *named, protocol="none", items=items)


ORDERS = """user,item,Description,price,buyer
1,10,Ten,1.50,1
2,20,?,2.00,2
1,20,Twenty,2.00,1
3,20,Twenty,2.00,3
3,30,,3.00,3
2,30,b,,2
1,30,a,3.00,1
2,10,Ten,1.50,2
"""


def test_an_export_of_orders_describes_its_items(write: WriteFile, tmp_path: Path) -> None:
    header, *rows = ORDERS.splitlines(keepends=True)
    digests = set()
    for number, order in enumerate((rows, rows[::-1])):
        orders = write(header + "".join(order), f"{number}/orders.csv")
        dataset = prepare(orders, tmp_path / f"{number}/out", protocol="none", items=orders)
        assert dataset.items.titles() == ["Ten", "Twenty", "a"]
        described = pq.read_table(dataset.path / "items.parquet")
        assert described.column("price").to_pylist() == ["1.50", "2.00", "3.00"]
        assert "buyer" not in described.column_names
        named = ("Description", "orders.csv", 3, 3, 2, "user", "buyer")
        says(dataset.manifest.notes["titles"], *named)
        digests.add(dataset.manifest.digest)
    assert len(digests) == 1


def test_a_list_of_items_without_titles_may_repeat_them(write: WriteFile, tmp_path: Path) -> None:
    source = write("user_id,item_id\n1,7\n2,8\n")
    for number, content in enumerate(("code\n7\n7\n8\n", "code,colour\n7,red\n7,red\n8,blue\n")):
        items = write(content, "items.csv")
        dataset = prepare(source, tmp_path / f"{number}", protocol="none", items=items)
        assert dataset.items.titles() is None
        assert dataset.manifest.num_items == 2


def test_preparing_the_same_again_opens_what_is_there(write: WriteFile, tmp_path: Path) -> None:
    source, out = write("1;1\n1;2\n"), tmp_path / "out"
    config = PrepareConfig(protocol="none", columns=("user_id", "item_id"), delimiter=";")
    first = prepare(source, out, config)
    written = (out / "manifest.json").stat().st_ino
    again = prepare(source, out, config)
    assert again.manifest.digest == first.manifest.digest
    assert (out / "manifest.json").stat().st_ino == written
    with raises(DatasetError, "--overwrite"):
        prepare(source, out, replace(config, seed=2))
    prepare(source, out, config, overwrite=True)
    assert (out / "manifest.json").stat().st_ino != written


def test_foreign_directories_are_never_replaced(write: WriteFile, tmp_path: Path) -> None:
    source, out = write("user_id,item_id\n1,1\n"), tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    config = PrepareConfig(protocol="none")
    with raises(DatasetError):
        prepare(source, out, config, overwrite=True)
    assert (out / "thesis.txt").read_text() == "years of work"
    with raises(DatasetError, "raw.csv"):
        prepare(source, source, config, overwrite=True)
    (out / "manifest.json").write_text('{"name": "a web page that installs itself"}')
    with raises(DatasetError):
        prepare(source, out, config, overwrite=True)
    for path in out.iterdir():
        path.unlink()
    assert prepare(source, out, config).path == out
    (out / "items.parquet").unlink()
    assert prepare(source, out, config, overwrite=True).path == out
    (out / "notes").mkdir()
    assert prepare(source, out, config).path == out  # opened, because it is the same
    with raises(DatasetError, "out/notes"):
        prepare(source, out, config, overwrite=True)
    assert (out / "notes").is_dir()


def test_a_dataset_that_another_process_has_just_made_is_kept(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other dataset appeared after the last check, while this one was written."""
    source, out = write("user_id,item_id\n1,1\n"), tmp_path / "out"
    theirs = prepare(source, tmp_path / "theirs", protocol="none")
    check = preparation.check_output

    def made_after_the_last_look(path: Path, overwrite: bool) -> None:
        check(path, overwrite)
        if list(tmp_path.glob(".*.tmp.out/out/manifest.json")):
            theirs.path.rename(path)

    monkeypatch.setattr(preparation, "check_output", made_after_the_last_look)
    with raises(DatasetError):
        prepare(source, out, protocol="none", seed=2)
    assert open_dataset(out).manifest == theirs.manifest


def test_an_output_that_cannot_be_written(write: WriteFile) -> None:
    source = write("user_id,item_id\n1,1\n")
    with raises(DatasetError):
        prepare(source, source / "below" / "a file", PrepareConfig(protocol="none"))


def test_steps_are_told_and_counts_summarised(table: pa.Table, tmp_path: Path) -> None:
    reports: list[str] = []
    dataset = prepare(table, tmp_path / "out", progress=reports.append)
    assert reports == ["checksum", "read", "filter", "collapse repeats", "split", "number", "write"]
    summary = dict(dataset.manifest.summary())
    assert summary["protocol"] == "leave-one-out"
    assert summary["rows read"] == summary["interactions"] == "6,000"
    assert summary["test interactions"] == summary["test users"] == "300"


NO_TIMES = ", because no time column was found (--time-column names one)"
PAIR = "'user' as user_id, 'item' as item_id"


@pytest.mark.parametrize(
    ("header", "settings", "protocol", "columns"),
    [
        ("user,item,ts", {}, "leave-one-out", f"{PAIR}, 'ts' as time"),
        ("user,item,played", {}, f"held-out-users{NO_TIMES}", PAIR),
        (
            "user,item,played",
            {"protocol": "leave-one-out", "validation": "none"},
            f"leave-one-out (random){NO_TIMES}, no validation part",
            PAIR,
        ),
        (
            "user,item,ts",
            {"protocol": "held-out-users"},
            "held-out-users",
            f"{PAIR}, 'ts' as time",
        ),
        ("user,item,played", {"protocol": "none"}, "none", PAIR),
        (
            "user,item,stars",
            {"protocol": "none", "min_rating": 0},
            "none",
            f"{PAIR}, 'stars' as rating",
        ),
    ],
)
def test_the_summary_says_which_columns_were_taken_and_that_there_are_no_times(
    prepared: PrepareText, header: str, settings: dict[str, object], protocol: str, columns: str
) -> None:
    rows = "".join(f"{n // 5},{n % 7},{n}\n" for n in range(50))
    manifest = prepared(f"{header}\n{rows}", **settings).manifest
    assert dict(manifest.summary())["protocol"] == protocol
    assert dict(manifest.summary())["columns"] == columns
    num_choices = 2 + len(manifest.notes)
    assert manifest.summary()[:num_choices] == manifest.choices()


def test_raw_files_are_prepared_once(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write("user_id,item_id\n1,1\n1,2\n", "shop.csv")
    config = PrepareConfig(protocol="none")
    reports: list[str] = []
    first = prepare(source, config=config)
    again = open_or_prepare(PrepareRequest.of(source, config=config), progress=reports.append)
    assert (again.path, again.manifest) == (first.path, first.manifest)
    assert reports == ["checksum"]
    assert first.path.parent == Path("datasets")
    assert first.path.name.startswith("shop-")
    assert open_or_prepare(PrepareRequest.of(first.path)).path == first.path
    assert (
        open_or_prepare(
            PrepareRequest.of(source, config=PrepareConfig(protocol="none", seed=1))
        ).path
        != first.path
    )
    made = (first.path / "manifest.json").stat().st_ino
    assert prepare(source, config=config, overwrite=True).path == first.path
    assert (first.path / "manifest.json").stat().st_ino != made
    with raises(SettingError):
        open_or_prepare(PrepareRequest.of(first.path, config=config))


def test_frames_are_prepared_once_too(table: pa.Table, tmp_path: Path) -> None:
    first = open_or_prepare(PrepareRequest.of(table, root=tmp_path))
    assert open_or_prepare(PrepareRequest.of(table, root=tmp_path)).path == first.path
    assert open_or_prepare(PrepareRequest.of(table.slice(1), root=tmp_path)).path != first.path


def test_the_same_bytes_read_in_another_way_are_another_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header of one file is an interaction in the other."""
    monkeypatch.chdir(tmp_path)
    text = "uid\tmovie\tstars\tts\n" + "1\t2\t3\t4\n1\t3\t3\t5\n1\t4\t3\t6\n"
    config = PrepareConfig(protocol="none")
    for name in ("s.csv", "s.rating"):
        Path(name).write_text(text)
    first, second = (prepare(name, config=config) for name in ("s.csv", "s.rating"))
    assert first.path != second.path


def test_a_file_is_prepared_without_pandas(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "plays.parquet")
    code = (
        "import sys; from foretaste.data import prepare; prepare('plays.parquet', 'dataset');"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)

"""The files of a folder, a pattern or a list of names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import GivenSplit, open_or_prepare, prepare
from foretaste.data.request import PrepareRequest
from tests.data.conftest import WriteFile, refuse
from tests.databases import require_adbc, write_sqlite
from tests.messages import says

TABLE = pa.table(
    {"user_id": [1, 1, 1, 2, 2, 2], "item_id": [5, 6, 7, 5, 6, 8], "timestamp": range(1, 7)}
)
FOLDERS = "user_id=999/timestamp=3/ITEM_ID=x/c0=7/new=1"


def stored(table: pa.Table, path: Path) -> Path:
    """The table as a file, in the format of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_file_is_what_it_is_wherever_it_lies(tmp_path: Path, name: str) -> None:
    plain = prepare(stored(TABLE, tmp_path / name), tmp_path / "plain")
    below = stored(TABLE, tmp_path / "all" / FOLDERS / name)
    for source in (below, below.parent, tmp_path / "all", f"{tmp_path}/all/**/x.*"):
        prepared = prepare(source, tmp_path / "out", overwrite=True)
        assert prepared.manifest.digest == plain.manifest.digest
        assert prepared.manifest.columns == plain.manifest.columns
        assert prepared.manifest.notes == plain.manifest.notes


LOGS = {"Delta": "_delta_log/0.json", "Hudi": ".hoodie/hoodie.properties",
        "Iceberg": "metadata/v1.metadata.json"}  # fmt: skip


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("place", ["", "data", "data/day=1"])
def test_a_folder_with_a_log_of_its_own_is_refused(kind: str, place: str, tmp_path: Path) -> None:
    table, log = tmp_path / "in" / "t", tmp_path / "in" / "t" / LOGS[kind]
    part = stored(TABLE, table / place / "part-0.parquet")
    log.parent.mkdir(parents=True)
    log.touch()
    (tmp_path / "link").symlink_to(part.parent)
    for source in (table, table.parent, part.parent, part, f"{part.parent}/*.parquet",
                   f"{tmp_path}/**/*.parquet", [part, part], tmp_path / "link"):  # fmt: skip
        refuse(source, kind, LOGS[kind].split("/")[0], "--engine")


def test_text_beside_such_a_log_is_read(write: WriteFile, tmp_path: Path) -> None:
    write("{}", "metadata/v1.metadata.json")
    stored(TABLE, tmp_path / "data" / "x.csv")
    assert prepare(tmp_path / "data", tmp_path / "out").manifest.counts["num_rows_read"] == 6


def num_rows(source: Any, out: Path, **settings: Any) -> tuple[int, str]:
    """The number of rows read, and the note on the files."""
    manifest = prepare(source, out, protocol="none", overwrite=True, **settings).manifest
    return manifest.counts["num_rows_read"], manifest.notes.get("files", "")


def test_a_file_with_two_names_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored(TABLE.rename_columns(["user_id", "item_id", "plays"]), Path("logs/w.csv"))
    Path("logs/soft.csv").symlink_to("w.csv")
    Path("hard.csv").hardlink_to("logs/w.csv")
    Path("loop").mkdir()
    Path("loop/w.csv").symlink_to("../logs/w.csv")
    Path("loop/again").symlink_to(".")
    once, alike = "and counts once (1 name)", "again, and counts once (1 name)"
    full = Path("logs/w.csv").absolute()
    for source, note in (
        (["logs/w.csv", "./logs/w.csv"], f"logs/w.csv is named again, {once}"),
        (["logs/w.csv", "logs/../logs/w.csv"], f"logs/../logs/w.csv is logs/w.csv {alike}"),
        ([Path("logs/w.csv"), full], f"{full} is logs/w.csv {alike}"),
        (["logs/w.csv", "hard.csv"], f"hard.csv is logs/w.csv {alike}"),
        ("logs", f"logs/w.csv is logs/soft.csv {alike}"),
        (["logs/*.csv", "logs"], "logs/w.csv is logs/soft.csv again, and counts once (3 names)"),
        ("loop", ""),
    ):
        assert num_rows(source, tmp_path / "out") == (6, note)
    # The system follows this many links.
    read, said = num_rows("loop/**/*.csv", tmp_path / "out")
    assert read == 6
    says(said, "loop/again/w.csv", "loop/w.csv")
    alone = prepare("hard.csv", "alone", weight_column="plays", protocol="none")
    twice = prepare(["hard.csv", "logs"], "twice", weight_column="plays", protocol="none")
    assert twice.manifest.digest == alone.manifest.digest


def test_a_frame_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    frame = TABLE.to_pandas()
    note = "table is named again, and counts once (1 name)"
    assert num_rows([frame, frame], tmp_path / "out") == (6, note)
    assert num_rows([frame, frame.copy()], tmp_path / "out") == (12, "")


def test_a_file_in_two_parts_counts_once_under_protocol_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(TABLE.rename_columns(["user_id", "item_id", "plays"]), Path("a.csv"))
    split = GivenSplit(train="a.csv", test="./a.csv")
    alone, twice = (
        prepare(source, name, weight_column="plays", protocol="none")
        for source, name in (("a.csv", "alone"), (split, "twice"))
    )
    assert twice.manifest.digest == alone.manifest.digest
    says(twice.manifest.notes["files"], "a.csv")


def test_a_database_with_two_names_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_adbc()
    monkeypatch.chdir(tmp_path)
    write_sqlite(
        Path("w.db"), "CREATE TABLE plays (user_id, item_id)", "INSERT INTO plays VALUES (?, ?)",
        rows=[(1, 2), (1, 3)],
    )  # fmt: skip
    read, note = num_rows(["sqlite:///w.db", "sqlite:///./w.db"], tmp_path / "out")
    assert read == 2
    says(note, "sqlite:///./w.db", "sqlite:///w.db", 1)


def test_linked_folders_are_read_and_links_to_nothing_are_named(tmp_path: Path) -> None:
    stored(TABLE, tmp_path / "top" / "2024" / "w.csv")
    stored(TABLE, tmp_path / "far" / "b.csv")
    (tmp_path / "top" / "2023").symlink_to("../far")
    assert num_rows(tmp_path / "top", tmp_path / "out") == (12, "")
    (tmp_path / "top" / ".#lock").symlink_to("nowhere")
    assert num_rows(tmp_path / "top", tmp_path / "out") == (12, "")
    (tmp_path / "top" / "2022.csv").symlink_to("../far/gone.csv")
    for source in (tmp_path / "top", f"{tmp_path}/top/*.csv", tmp_path / "top" / "2022.csv"):
        refuse(source, "2022.csv")


LEFTOVERS = (
    "part-1.csv.tmp",
    "part-0.csv~",
    "part-0.csv.bak",
    "NOTES",
    "manifest",
    "manifest.json",
)


@pytest.mark.parametrize(
    "settings", [{}, {"delimiter": ","}, {"columns": ("user_id", "item_id", "timestamp")}]
)
def test_files_that_are_no_data_are_left_out_of_a_folder(
    write: WriteFile, tmp_path: Path, settings: dict[str, Any]
) -> None:
    header = "" if "columns" in settings else "user_id,item_id,timestamp\n"
    for name in ("part-0.csv", *LEFTOVERS, "_SUCCESS", "_part-2.csv", ".part-0.csv.crc"):
        write(f"{header}1,2,3\n1,3,4\n", f"s/{name}")
    read, note = num_rows(tmp_path / "s", tmp_path / "out", **settings)
    assert read == 2
    says(note, tmp_path / "s" / "NOTES", 6)
    for name in LEFTOVERS:
        (tmp_path / "s" / name).unlink()
    assert num_rows(f"{tmp_path}/s/*", tmp_path / "out", **settings) == (2, "")
    assert num_rows(f"{tmp_path}/s/_part*", tmp_path / "out", **settings) == (2, "")


def test_a_folder_of_names_that_say_nothing_is_read_with_a_delimiter(
    write: WriteFile, tmp_path: Path
) -> None:
    for name in ("part-00000", "part-00001"):
        write("1,2\n1,3\n", f"s/{name}")
    write("1,2\n", "s/part-00000~")
    columns = ("user_id", "item_id")
    read, note = num_rows(tmp_path / "s", tmp_path / "out", columns=columns)
    assert (read, note[-9:]) == (4, " (1 file)")
    refuse(tmp_path / "s", "part-00000")


@pytest.mark.parametrize("name", ["manifest.json", "metrics.jsonl"])
def test_a_folder_is_no_dataset_for_a_file_that_other_programs_have_too(
    write: WriteFile, tmp_path: Path, name: str
) -> None:
    write('{"entries": [{"url": "s3://bucket/part-0.csv"}]}', f"s/{name}")
    stored(TABLE, tmp_path / "s" / "part-0.csv")
    read, note = num_rows(tmp_path / "s", tmp_path / "out")
    assert read == 6
    says(note, tmp_path / "s" / name, 1)
    assert num_rows(f"{tmp_path}/s/*", tmp_path / "out") == (read, note)
    opened = open_or_prepare(PrepareRequest.of(tmp_path / "s", root=tmp_path / "datasets"))
    assert opened.manifest.counts["num_rows_read"] == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    stored(TABLE, tmp_path / "s" / "x.csv")
    (tmp_path / "s" / "closed").mkdir(mode=0)
    refuse(tmp_path / "s", "closed", "Permission denied")

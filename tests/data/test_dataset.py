"""A directory that differs from its manifest is refused, and the error names the file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste._util.signed_json import signed_text
from foretaste.data import (
    Dataset,
    PrepareConfig,
    open_dataset,
    part_files,
    prepare,
)
from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.data.preparation.writing import content_digest
from foretaste.errors import DatasetError
from tests.data.conftest import WriteFile
from tests.messages import Named, raises

ROWS = "".join(f"{user},{item},{item}\n" for user in range(4) for item in range(user, 7))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    source = tmp_path_factory.mktemp("made") / "raw.csv"
    source.write_text("user_id,item_id,time\n" + ROWS)
    return prepare(source, source.with_name("out"))


@pytest.fixture
def dataset(made: Dataset, tmp_path: Path) -> Dataset:
    """A copy to damage."""
    return open_dataset(shutil.copytree(made.path, tmp_path / "out"))


def test_opened_again_it_is_the_same(made: Dataset) -> None:
    again = open_dataset(str(made.path))
    assert again.manifest == made.manifest
    assert again.train.item_index.tolist() == made.train.item_index.tolist()
    assert "leave-one-out" in repr(again)


def test_opening_needs_no_engine(dataset: Dataset) -> None:
    code = (
        "import sys; from foretaste.data import open_dataset, open_or_prepare; "
        "from foretaste.data.request import PrepareRequest; "
        "data = open_or_prepare(PrepareRequest(source=sys.argv[1])); "
        "open_dataset(sys.argv[1]).heldout('test'); "
        "data.train, data.users, data.items; sys.exit('duckdb' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(dataset.path)], check=True)


def test_the_plan_and_the_steps_need_no_engine() -> None:
    """Another engine can run them without importing this one."""
    names = (
        *("steps", "plan", "columns", "casts", "reading", "pipeline", "candidates", "inputs"),
        *("engine", "writing"),
    )
    modules = ", ".join(f"foretaste.data.preparation.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit(bool({{'duckdb', 'pyspark'}} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("one", "other"), [("duckdb", "spark"), ("spark", "duckdb")])
def test_no_engine_knows_the_other(one: str, other: str) -> None:
    """One engine neither imports the other nor needs it installed."""
    folder = Path(part_files.__file__).with_name("preparation")
    for file in folder.glob(f"{one}_*.py"):
        assert not re.search(rf"import.*{other}|{other}.* import", file.read_text()), file.name


def test_rows_of_a_held_out_split(dataset: Dataset) -> None:
    heldout = dataset.heldout("test")
    some = heldout.rows(np.array([2, 0]))
    assert (len(heldout), len(some), some.split) == (4, 2, "test")
    assert some.user_index.tolist() == [2, 0]
    assert some.target.lengths().tolist() == [1, 1]
    assert some.history.lengths().tolist() == [3, 5]


def test_all_interactions_are_training_and_held_out_ones(dataset: Dataset) -> None:
    everything = dataset.all_interactions()
    assert everything.num_interactions == ROWS.count("\n")
    assert everything.lengths().tolist() == [7, 6, 5, 4]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (cut, ("does not match",)),
        (Path.unlink, ("listed in the",)),
        (pipe, ("listed in the",)),
    ],
)
def test_a_damaged_file_is_named(
    dataset: Dataset, damage: Callable[[Path], None], named: Named
) -> None:
    damage(dataset.path / "test.parquet")
    with raises(DatasetError, "test.parquet", *named):
        open_dataset(dataset.path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format_version": 99}, (99, 4)),
        ({"format_version": 3}, (3, 4)),
        ({"colour": "blue"}, ("damaged",)),
    ],
)
def test_another_manifest_is_refused(
    dataset: Dataset, change: dict[str, object], named: Named
) -> None:
    path = dataset.path / FILE_NAME
    path.write_text(signed_text(json.loads(path.read_text()) | change))
    with raises(DatasetError, FILE_NAME, *named):
        open_dataset(dataset.path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ("cannot be read", re.compile(".*"))),
        (b"[" * 100_000, ("cannot be read", re.compile(".*"))),
        (b"\xff", ("cannot be read", re.compile(".*"))),
        (b"[]", ("was written in",)),
        (b'{"format_version": 4}', ("damaged",)),
    ],
    ids=range(5),
)
def test_what_is_no_manifest(dataset: Dataset, content: bytes, named: Named) -> None:
    (dataset.path / FILE_NAME).write_bytes(content)
    with raises(DatasetError, "manifest.json", *named):
        open_dataset(dataset.path)


def test_a_bit_that_was_flipped_anywhere_in_the_manifest_is_noticed(dataset: Dataset) -> None:
    path = dataset.path / FILE_NAME
    sound = path.read_bytes()
    for place in range(0, len(sound), 5):  # one bit of each place
        changed = bytearray(sound)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(DatasetError, match=FILE_NAME):
            Manifest.read(dataset.path)


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with raises(DatasetError, "manifest.json"):
        open_dataset(tmp_path)
    with raises(DatasetError):
        open_dataset(tmp_path / "absent")


def test_a_dataset_replaced_after_it_was_opened_is_refused(
    dataset: Dataset, write: WriteFile
) -> None:
    rows = "".join(f"{user},{item},{-item}\n" for user in range(9) for item in range(7, 20))
    prepare(write("user_id,item_id,time\n" + rows), dataset.path, overwrite=True)
    uses: list[tuple[str, Callable[[], object]]] = [
        ("train", lambda: dataset.train),
        ("users", lambda: dataset.users),
        ("items", lambda: dataset.items),
        ("test", lambda: dataset.heldout("test")),
        ("train", dataset.all_interactions),
    ]
    for name, use in uses:
        with raises(DatasetError, name):
            use()


def test_what_a_killed_writer_put_aside_is_put_back_by_writers(
    dataset: Dataset, write: WriteFile
) -> None:
    holder = dataset.path.with_name(f".abcd1234.tmp.{dataset.path.name}")
    holder.mkdir()
    dataset.path.rename(holder / f"{dataset.path.name}.previous")
    with raises(DatasetError, "--overwrite"):
        prepare(write("user_id,item_id\n1,1\n"), dataset.path)


def test_an_absent_split_is_refused(write: WriteFile, tmp_path: Path) -> None:
    source = write("user_id,item_id\n1,1\n")
    dataset = prepare(source, tmp_path / "all", PrepareConfig(protocol="none"))
    with raises(DatasetError):
        dataset.heldout("test")


def test_a_split_that_is_there_is_named_instead(write: WriteFile, tmp_path: Path) -> None:
    source = write("user_id,item_id,time\n1,1,1\n1,2,2\n1,3,3\n")
    dataset = prepare(source, tmp_path / "tested", PrepareConfig(validation="none"))
    with raises(DatasetError, "--split"):
        dataset.heldout("validation")


def test_the_content_digest_is_of_values_alone(tmp_path: Path) -> None:
    whole = pa.table({"item_index": pa.array([0, 1], pa.int32()), "item_id": ["a", None]})
    large = whole.cast(pa.schema([("item_index", pa.int32()), ("item_id", pa.large_string())]))

    def digest(table: pa.Table, **options: object) -> str:
        path = tmp_path / "items.parquet"
        pq.write_table(table, path, **options)
        return content_digest(path)

    kept = digest(whole)
    assert kept == digest(whole, row_group_size=1, compression="none") == digest(large)
    for other in (["a", ""], ["b", None], [None, "a"]):
        assert digest(whole.set_column(1, "item_id", pa.array(other, pa.string()))) != kept

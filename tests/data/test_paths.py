"""The named file is opened, hashed and read, however odd its name is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import PrepareConfig, open_dataset, prepare
from foretaste.errors import InputError
from tests.data.conftest import WriteFile
from tests.messages import raises

ALL = PrepareConfig(protocol="none")


def rows(user: str) -> str:
    return f"user_id,item_id\n{user},1\n"


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


def as_parquet(user: str) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"user_id": [user], "item_id": [1]}), sink)
    return bytes(sink.getvalue())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a home folder and an absolute-looking twin beside it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("folder", ["~", "file:", "file:/nested", "s3:/bucket", "http:/host"])
def test_folders_that_look_like_something_else(write: WriteFile, here: Path, folder: str) -> None:
    made = {"x.csv": rows, "[x] *?.csv": rows, "x.parquet": as_parquet,
            "x.csv.gz": lambda user: packed(rows(user))}  # fmt: skip
    for name, make in made.items():
        write(make("wrong"), f"home/{name}")
        write(make(f"right {name}"), f"{folder}/{name}")
    prepared = prepare([f"{folder}/{name}" for name in made], f"{folder}/out", ALL)
    assert prepared.users.ids() == sorted(f"right {name}" for name in made)
    assert open_dataset(f"{folder}/out").train.num_interactions == len(made)


@pytest.mark.parametrize("decoy", ["ab*.csv", "a/b*.csv", "a/bx.csv"])
def test_a_backslash_in_a_name(write: WriteFile, here: Path, decoy: str) -> None:
    write(rows("wrong"), decoy)
    assert prepare(write(rows("right"), "a\\b.csv"), "out", ALL).users.ids() == ["right"]
    for name in ("a\\b*.csv", "a\\b?.csv", "a[\\]b.csv"):
        write(rows("right"), name)
        with raises(InputError):
            prepare(name, "again", ALL)


def test_a_link_is_read_as_its_own_name_says(write: WriteFile, here: Path) -> None:
    target = write(packed(rows("right")), "blobs/0a*f")
    (here / "x.csv.GZ").symlink_to(target)
    assert prepare("x.csv.GZ", "out", ALL).users.ids() == ["right"]


def test_a_parent_folder_is_the_parent_of_the_linked_folder(write: WriteFile, here: Path) -> None:
    write(rows("wrong"), "[x].csv")
    write(rows("right"), "real/[x].csv")
    (here / "real" / "sub").mkdir()
    (here / "link").symlink_to("real/sub")
    assert prepare("link/../[x].csv", "out", ALL).users.ids() == ["right"]


def test_mistakes_are_told_by_the_name_that_was_given(write: WriteFile, here: Path) -> None:
    write(rows("right") + "2\n", "~/[x].csv")
    with raises(InputError, 3, 2, 1):
        prepare("~/[x].csv", "out", ALL)

"""Parts of the training pairs: equal to slices of the whole, from one file and from several."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, Histories, part_files, prepare
from foretaste.data.dataset import Split
from foretaste.errors import DatasetError
from foretaste.runs.verification import verify
from tests.data.partitions import in_partitions
from tests.messages import raises

GIANT = 5
"""A user with more interactions than all others together."""

LAYOUTS: dict[str, list[int]] = {"one file": [], "three": [0, 3, 6], "with an empty one": [0, 4, 4]}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rows = [(user, (user * 3 + n) % 23) for user in range(9) for n in range(4 + user % 3)]
    rows += [(GIANT, item) for item in range(60)]
    text = "".join(f"{user},{item},{n}\n" for n, (user, item) in enumerate(rows))
    source = tmp_path_factory.mktemp("rows") / "raw.csv"
    source.write_text("user_id,item_id,time\n" + text)
    return prepare(source, source.with_name("prepared"))


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def laid_out(dataset: Dataset, tmp_path: Path, request: pytest.FixtureRequest) -> Dataset:
    return in_partitions(dataset, tmp_path / "laid_out", request.param)


def pairs(histories: Histories) -> list[tuple[int, int]]:
    return list(zip(histories.row_index().tolist(), histories.item_index.tolist(), strict=True))


def sliced(dataset: Dataset, users: range) -> list[tuple[int, int]]:
    return [(user - users.start, item) for user, item in pairs(dataset.train) if user in users]


def test_any_part_is_a_slice_of_the_whole(dataset: Dataset, laid_out: Dataset) -> None:
    num_users, num_items = dataset.manifest.num_train_users, dataset.manifest.num_items
    for users in (range(num_users), range(2, 7), range(GIANT, GIANT + 1), range(4, 4)):
        part = laid_out.train_part(users)
        assert pairs(part) == sliced(dataset, users)
        assert (part.num_users, part.num_items) == (len(users), num_items)
        assert part.item_index.dtype == np.int32
    assert laid_out.train_part(range(num_users)) is laid_out.train


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_users_come_with_the_histories_of_a_part(
    dataset: Dataset, laid_out: Dataset, split: Split
) -> None:
    whole = dataset.heldout(split)
    for users in (range(2, 7), range(9), range(4, 4)):
        part = laid_out.heldout(split, users)
        assert pairs(part.target) == pairs(whole.target)
        assert part.user_index.tolist() == whole.user_index.tolist()
        train = set(pairs(dataset.train.rows(whole.user_index)))
        assert pairs(part.history) == [
            (row, item)
            for row, item in pairs(whole.history)
            if whole.user_index[row] in users or (row, item) not in train
        ]
        assert part.history.num_items == part.known.num_items == whole.history.num_items
        held = set(pairs(whole.history)) - train
        assert bool(held) == (split == "test")


def test_parts_of_as_many_interactions_begin_at_these_users(
    dataset: Dataset, laid_out: Dataset
) -> None:
    row_index, num_users = dataset.train.row_index(), dataset.manifest.num_train_users
    for num_parts in (1, 2, 3, 4, num_users + 5):
        begins = [row_index[len(row_index) * part // num_parts] for part in range(num_parts)]
        assert laid_out.user_bounds(num_parts) == [*begins, num_users]
        assert dataset.train.user_bounds(num_parts) == [*begins, num_users]
    # The giant has the middle of the rows, and an end of some part within them.
    assert laid_out.user_bounds(2) == [0, GIANT, num_users]
    assert laid_out.user_bounds(4).count(GIANT) > 1


def test_only_row_groups_with_these_users_are_read(
    laid_out: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_row_group, num_read = pq.ParquetFile.read_row_group, []

    def counted(file: pq.ParquetFile, number: int, **options: Any) -> object:
        num_read.append(file.metadata.row_group(number).num_rows)
        return read_row_group(file, number, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    part = laid_out.train_part(range(1, 3))
    # The first and last group of the part, of three rows here, also have rows of other users.
    assert part.num_interactions <= sum(num_read) <= part.num_interactions + 4
    num_read.clear()
    laid_out.user_bounds(4)
    assert len(num_read) <= 3


def test_the_rest_of_a_dataset_knows_no_layout(dataset: Dataset, laid_out: Dataset) -> None:
    assert laid_out.manifest.digest == dataset.manifest.digest
    assert pairs(laid_out.heldout("test").known) == pairs(dataset.heldout("test").known)
    everything = laid_out.all_interactions()
    assert pairs(everything) == pairs(dataset.all_interactions())
    assert np.array_equal(laid_out.in_training(everything), dataset.in_training(everything))
    assert verify(laid_out.path) == []


def test_the_digest_is_taken_once(laid_out: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, file_digest = [], hashlib.file_digest

    def counted(file: BufferedReader, name: str) -> Any:
        taken.append(Path(str(file.name)).name)
        return file_digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    laid_out.train_part(range(2, 4))
    laid_out.user_bounds(3)
    assert not taken
    unopened = Dataset(laid_out.path, laid_out.manifest)
    unopened.train_part(range(2, 4))
    unopened.train_part(range(4, 5))
    assert sorted(taken) == sorted(Path(name).name for name in laid_out.manifest.train_files)


def replace_by_another(path: Path) -> None:
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table[:-1], path)


@pytest.mark.parametrize("damage", [replace_by_another, Path.unlink])
def test_a_replaced_file_is_refused(laid_out: Dataset, damage: Callable[[Path], None]) -> None:
    path = laid_out.path / laid_out.manifest.train_files[0]
    damage(path)
    for read in (laid_out.train_part, lambda users: laid_out.train):
        with raises(DatasetError, path.name):
            read(range(3))


def test_no_thread_of_arrow_holds_what_is_python_s(
    laid_out: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If Python exits while a thread of Arrow releases Python's bytes, the process aborts.
    open_regular, threads = part_files.open_regular, set()

    class Watched(BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            threads.add(threading.current_thread())
            return super().read(size)

    monkeypatch.setattr(
        part_files, "open_regular", lambda path: Watched(open_regular(path).detach())
    )
    laid_out.train_part(range(1, 3))
    laid_out.user_bounds(3)
    assert laid_out.users.ids()
    assert threads == {threading.current_thread()}


def test_a_file_that_changes_during_the_read_is_refused(
    laid_out: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out.user_bounds(2)
    path = laid_out.path / laid_out.manifest.train_files[0]
    read_row_group = pq.ParquetFile.read_row_group

    def read_then_write(file: pq.ParquetFile, number: int, **options: Any) -> object:
        table = read_row_group(file, number, **options)
        path.write_bytes(b"x" * path.stat().st_size)
        return table

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_then_write)
    with pytest.raises(DatasetError, match=path.name):
        laid_out.train_part(range(2))

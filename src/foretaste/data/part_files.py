"""Parts of a dataset: their bytes, once they are known to be their own, and the pairs in them; of
the training part also those of some users and items alone."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import open_regular, real_path
from foretaste.data.histories import Histories, check_pairs, sorted_pairs
from foretaste.data.manifest import Manifest
from foretaste.errors import DatasetError

_PARQUET_END = b"PAR1"

PAIR_COLUMNS = ["user_index", "item_index"]
"""Columns of every part but users and items."""

_PAIRS = "user_index (int32), item_index (int32)"


FileState = tuple[int, ...]
"""Device, number, size and time of the last change of a file, by which it is the same still."""


def check_part(path: Path, sha256: str) -> FileState:
    """The state of a file; DatasetError where it is missing or is not the one that the manifest
    lists."""
    with opened_part(path, sha256) as (_, state):
        return state


@contextmanager
def opened_part(
    path: Path, sha256: str, checked: FileState | None = None
) -> Iterator[tuple[BufferedReader, FileState]]:
    """Yield the part that the manifest lists, and its state.

    Its digest is taken in a pass of its own, so that none of it has to be held, unless it is in
    the state in which it was ``checked`` already; and again where it changed as it was read.
    Raises DatasetError as `check_part` does.
    """
    with _opened(path) as file:
        state = _state(file)
        if state != checked:
            _compare(path, hashlib.file_digest(file, "sha256").hexdigest(), sha256)
            file.seek(0)
        yield file, state
        if _state(file) != state:
            file.seek(0)
            _compare(path, hashlib.file_digest(file, "sha256").hexdigest(), sha256)


def _state(file: BufferedReader) -> FileState:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def part_bytes(path: Path, sha256: str) -> pa.Buffer:
    """The bytes of the part that the manifest lists, for what is read to be what was checked.

    Raises DatasetError as `check_part` does, also where the file was replaced since that.
    """
    with _opened(path) as file:
        content = buffer_of(file)
    _compare(path, hashlib.sha256(content).hexdigest(), sha256)
    return content


def buffer_of(file: BufferedReader) -> pa.Buffer:
    """The bytes of a file that was just opened, in memory that is not Python's."""
    # The last to let go of it may be a thread of Arrow's. It would wait for Python to do so, and
    # where Python exits meanwhile, it ends the thread, which aborts the process. Arrow's default
    # pool would not give the memory back.
    size = os.fstat(file.fileno()).st_size
    content = pa.allocate_buffer(size, memory_pool=pa.system_memory_pool())
    return content.slice(0, file.readinto(content))


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Yield a file that ends like Parquet; DatasetError where it is none or cannot be read."""
    if path.exists() and not path.is_file():
        raise DatasetError(f"{path}: is not a file; prepare the dataset again")
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_PARQUET_END)))
            # A file that was made longer, if only by a terabyte of nothing, is not read for it.
            if file.read(len(_PARQUET_END)) != _PARQUET_END:
                raise DatasetError(
                    f"{path}: does not match the manifest: sha256 not computed, as it does not end "
                    "like Parquet; prepare the dataset again"
                )
            file.seek(0)
            yield file
    except OSError as error:
        raise DatasetError(
            f"{path}: listed in the manifest, cannot be read: {error.strerror}; "
            "prepare the dataset again"
        ) from None


def _compare(path: Path, found: str, sha256: str) -> None:
    if found != sha256:
        raise DatasetError(
            f"{path}: does not match the manifest: sha256 {found[:12]}, expected {sha256[:12]}; "
            "open the dataset again if it was replaced meanwhile, else prepare it again"
        )


def read_table(path: Path | str, content: pa.Buffer | None = None) -> pa.Table:
    """A whole Parquet file, of these bytes where they were read already.

    Raises DatasetError where it is missing, damaged or holds what is no text.
    """
    try:
        # Not by pq.read_table, which imports pandas where it is installed: .2 s.
        with pq.ParquetFile(
            real_path(path) if content is None else pa.BufferReader(content)
        ) as file:
            table = file.read()
        table.validate(full=True)
        _ = table.column_names
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from None
    return table


def read_pairs(path: Path, content: pa.Buffer, *, num_users: int, num_items: int) -> Histories:
    """The pairs of the part at ``path``, which has these bytes.

    Raises DatasetError where they are unsorted, repeated or out of bounds.
    """
    table = read_table(path, content)
    check_columns(path, table)
    return pairs_in(table, num_users=num_users, num_items=num_items, where=str(path))


def check_columns(path: Path, pairs: pa.Table) -> None:
    """Raise DatasetError for a table at ``path`` that is none of pairs."""
    found = ", ".join(f"{field.name} ({field.type})" for field in pairs.schema)
    if found != _PAIRS or any(column.null_count for column in pairs.columns):
        raise DatasetError(
            f"{path}: expected {_PAIRS} without gaps, found {found:.200}; prepare the dataset again"
        )


def pairs_in(table: pa.Table, *, num_users: int, num_items: int, where: str) -> Histories:
    """The pairs of a table as histories.

    Raises DatasetError, which begins with ``where``, for pairs that are unsorted, repeated or out
    of bounds.
    """
    users, items = (integers(table[name]) for name in PAIR_COLUMNS)
    return sorted_pairs(users, items, num_users=num_users, num_items=num_items, where=where)


def integers(column: pa.ChunkedArray) -> NDArray[Any]:
    """The values of a column of integers without gaps; by ``to_numpy``, pandas is imported."""
    chunks = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    empty = np.empty(0, dtype=column.type.to_pandas_dtype())
    return np.concatenate([empty, *chunks])


class _Group(NamedTuple):
    """One row group of a file, and the users it has rows of."""

    file: str
    number: int
    num_rows: int
    first_user: int
    last_user: int


class TrainFiles:
    """The files of a training part, sorted by user and item one after the other.

    ``checked`` has the state in which files were found to be the manifest's; their digests are not
    taken again while they are in it.
    """

    def __init__(self, path: Path, manifest: Manifest, checked: Mapping[str, FileState]) -> None:
        self._path = path
        self._manifest = manifest
        self._checked = dict(checked)
        self.users = range(manifest.num_train_users)

    def read_whole(self) -> Histories:
        """All pairs, of the very bytes that were checked.

        Raises DatasetError where they are unsorted, repeated or out of bounds.
        """

        def tables() -> Iterator[tuple[Path, pa.Table]]:
            for name in self._manifest.train_files:
                path, part = self._path / name, self._manifest.parts[name]
                content = part_bytes(path, part.sha256)
                with _parquet(path, pa.BufferReader(content)) as file:
                    if file.metadata.num_rows != part.num_rows:
                        raise DatasetError(
                            f"{path}: has {file.metadata.num_rows} rows, and the manifest counts "
                            f"{part.num_rows}; prepare the dataset again"
                        )
                    for number in range(file.num_row_groups):
                        yield path, file.read_row_group(number)

        return self._histories(tables(), self._manifest.num_interactions, self.users)

    def read(self, users: range) -> Histories:
        """The pairs of these users, numbered from the first; one row group is held at a time,
        beside what comes back.

        Raises DatasetError as `read_whole` does.
        """
        groups = [
            group
            for group in self._groups
            if group.first_user < users.stop and group.last_user >= users.start
        ]

        def tables() -> Iterator[tuple[Path, pa.Table]]:
            for name, groups_of_file in groupby(groups, lambda group: group.file):
                with self._opened(name) as file:
                    for group in groups_of_file:
                        table = file.read_row_group(group.number, use_threads=False)
                        yield self._path / name, table

        return self._histories(tables(), sum(group.num_rows for group in groups), users)

    def users_at(self, rows: Sequence[int]) -> list[int]:
        """The users whose interactions these rows of all files are."""
        ends = list(accumulate(group.num_rows for group in self._groups))
        found = []
        for row in rows:
            number = bisect_right(ends, row)
            group = self._groups[number]
            user = group.first_user
            if user != group.last_user:
                with self._opened(group.file) as file:
                    table = file.read_row_group(
                        group.number, columns=PAIR_COLUMNS[:1], use_threads=False
                    )
                users = table.column(0)
                user = users[row - ends[number]].as_py()
            found.append(user)
        return found

    def _histories(
        self, tables: Iterable[tuple[Path, pa.Table]], num_rows: int, users: range
    ) -> Histories:
        """The pairs of these users in tables that follow each other, and their paths."""
        num_items = self._manifest.num_items
        lengths = np.zeros(len(users) + 1, dtype=np.int64)
        # Memory is taken as it is written to: what other users leave of it costs none.
        found = np.empty(num_rows, dtype=np.int32)
        num_found = 0
        last = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        for path, table in tables:
            check_columns(path, table)
            user_index, item_index = (integers(table[name]) for name in PAIR_COLUMNS)
            check_pairs(
                np.concatenate((last[0], user_index)),
                np.concatenate((last[1], item_index)),
                num_users=len(self.users),
                num_items=num_items,
                where=str(path),
            )
            last = user_index[-1:], item_index[-1:]
            kept = slice(*np.searchsorted(user_index, (users.start, users.stop)))
            user_index, item_index = user_index[kept], item_index[kept]
            if len(user_index):
                counts = np.bincount(user_index - user_index[0])
                start = user_index[0] - users.start + 1
                lengths[start : start + len(counts)] += counts
                found[num_found : num_found + len(item_index)] = item_index
                num_found += len(item_index)
        found.resize(num_found, refcheck=False)
        return Histories(offsets=np.cumsum(lengths), item_index=found, num_items=num_items)

    @cached_property
    def _groups(self) -> list[_Group]:
        """The groups of all files that have rows, in order."""
        groups = []
        for name in self._manifest.train_files:
            path = self._path / name
            with self._opened(name) as file:
                check_columns(path, file.schema_arrow.empty_table())
                for number in range(file.num_row_groups):
                    described = file.metadata.row_group(number)
                    users = described.column(0).statistics
                    if not described.num_rows:
                        continue
                    if users is None or not users.has_min_max:
                        raise DatasetError(
                            f"{path}: has row groups without statistics; prepare the dataset again"
                        )
                    groups.append(_Group(name, number, described.num_rows, users.min, users.max))
        bounds = np.array([group[-2:] for group in groups], dtype=np.int64).ravel()
        order = np.arange(len(bounds))
        check_pairs(
            bounds,
            order,
            num_users=len(self.users),
            num_items=len(order),
            where=str(self._path / self._manifest.train_files[0]),
        )
        return groups

    @contextmanager
    def _opened(self, name: str) -> Iterator[pq.ParquetFile]:
        """Yield a file that is the manifest's; DatasetError where it is not, or cannot be read."""
        path, sha256 = self._path / name, self._manifest.parts[name].sha256
        with opened_part(path, sha256, self._checked.get(name)) as (content, state):
            self._checked[name] = state
            with _parquet(path, content) as file:
                yield file


@contextmanager
def _parquet(path: Path, content: Any) -> Iterator[pq.ParquetFile]:
    """Yield the file with this content; DatasetError naming ``path`` where it cannot be read."""
    try:
        # Of a file of Python's no thread of Arrow's may hold what was read, as in `buffer_of`: it
        # is read by none, and its groups are without ``use_threads``.
        with pq.ParquetFile(content, pre_buffer=False) as file:
            yield file
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from None

"""Reader of a dataset's files, checked against the manifest; can read some users' pairs alone."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import open_regular
from foretaste.data.histories import Histories
from foretaste.data.manifest import Manifest
from foretaste.errors import DatasetError

PAIR_COLUMNS = ["user_index", "item_index"]
"""Columns of every part with interactions."""

FEATURE_COLUMNS = ["item_index", "value_index"]
"""Columns of the features: the values of each item."""

POSITION_COLUMN = "position"
"""Third column of every part with interactions except the candidates, if interactions have an
order: the place among all of the user's interactions, held-out ones too. 0 is the oldest."""

WEIGHT_COLUMN = "weight"
"""Last column of the training part, if interactions have weights."""


_Number = TypeVar("_Number", bound=np.generic)


class _Group(NamedTuple):
    """One row group of a file, with the first and last user in it."""

    file: str
    number: int
    num_rows: int
    first_user: int
    last_user: int


class PartFiles:
    """The files that a manifest lists.

    One descriptor checks and reads a file, so the bytes read are the bytes checked. The digest is
    computed again only if the file's device, inode, size or time of the last change differ.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._checked: dict[str, tuple[int, ...]] = {}

    def check(self, name: str) -> None:
        """Raise DatasetError if a file is missing or differs from the manifest."""
        with self._open_verified(name):
            pass

    def read(self, name: str) -> pa.Table:
        """Return a whole file; raises DatasetError like `check`."""
        with self._open_verified(name) as content, _parquet(content) as file:
            return file.read(use_threads=False)

    def read_pairs(self, name: str, *, num_users: int, num_items: int) -> Histories:
        """Return the pairs of another file than the training files; raises like `check`."""
        table = self.read(name)
        columns = {column: numbers(table[column]) for column in table.column_names}
        users, items = (columns[column] for column in PAIR_COLUMNS)
        return Histories.from_sorted(
            users,
            items,
            num_users=num_users,
            num_items=num_items,
            position=columns.get(POSITION_COLUMN),
        )

    def read_train(self, users: range) -> Histories:
        """Return the training pairs of these users, the first user in row 0. Memory holds the
        result and one row group. Raises DatasetError like `check`.
        """
        # Reading row group by row group takes less than half of the memory of whole tables. Parquet
        # is the only format: 19.8 million pairs load in 40 to 300 ms.
        lengths = np.zeros(len(users) + 1, dtype=np.int64)
        found = self._allocate(users, np.int32)
        num_found = 0
        for user_index, item_index in self._rows_of(users, PAIR_COLUMNS):
            counts = np.bincount(user_index - user_index[0])
            start = user_index[0] - users.start + 1
            # Counts are added, because the next row group may continue the pairs of a user.
            lengths[start : start + len(counts)] += counts
            found[num_found : num_found + len(item_index)] = item_index
            num_found += len(item_index)
        # `resize` works in place: a copy would hold the pairs twice.
        found.resize(num_found, refcheck=False)
        return Histories(
            offsets=np.cumsum(lengths), item_index=found, num_items=self.manifest.num_listed_items
        )

    def read_column(self, name: str, users: range, dtype: type[_Number]) -> NDArray[_Number]:
        """Return another column of the pairs of `read_train`, read one row group at a time too."""
        found = self._allocate(users, dtype)
        num_found = 0
        for _, values in self._rows_of(users, [PAIR_COLUMNS[0], name]):
            found[num_found : num_found + len(values)] = values
            num_found += len(values)
        found.resize(num_found, refcheck=False)
        return found

    def _groups_of(self, users: range) -> list[_Group]:
        return [
            group
            for group in self._groups
            if group.first_user < users.stop and group.last_user >= users.start
        ]

    def _allocate(self, users: range, dtype: type[_Number]) -> NDArray[_Number]:
        """Return an empty array for one number per pair of these users, or somewhat larger."""
        # The system allocates a page at the first write, so the surplus costs no memory.
        return np.empty(sum(group.num_rows for group in self._groups_of(users)), dtype=dtype)

    def _rows_of(self, users: range, columns: list[str]) -> Iterator[tuple[NDArray[np.int32], ...]]:
        """Yield these users' columns, users first, one row group at a time, but no empty ones."""
        for name, groups_of_file in groupby(self._groups_of(users), lambda group: group.file):
            with self._open_verified(name) as content, _parquet(content) as file:
                for group in groups_of_file:
                    table = file.read_row_group(group.number, columns=columns, use_threads=False)
                    arrays = [numbers(table.column(column)) for column in columns]
                    # Rows are sorted by user, so two binary searches replace a mask.
                    kept = slice(*np.searchsorted(arrays[0], (users.start, users.stop)))
                    if kept.start < kept.stop:
                        yield tuple(array[kept] for array in arrays)

    def train_users_at(self, rows: Sequence[int]) -> list[int]:
        """Return the user of each row; rows are counted over all training files."""
        ends = list(accumulate(group.num_rows for group in self._groups))
        found = []
        for row in rows:
            number = bisect_right(ends, row)
            group = self._groups[number]
            user = group.first_user
            if user != group.last_user:
                with self._open_verified(group.file) as content, _parquet(content) as file:
                    table = file.read_row_group(
                        group.number, columns=PAIR_COLUMNS[:1], use_threads=False
                    )
                user = table.column(0)[row - ends[number]].as_py()
            found.append(user)
        return found

    @cached_property
    def _groups(self) -> list[_Group]:
        """The row groups of all training files that have rows, in order."""
        groups = []
        for name in self.manifest.train_files:
            with self._open_verified(name) as content, _parquet(content) as file:
                for number in range(file.num_row_groups):
                    described = file.metadata.row_group(number)
                    if described.num_rows:
                        # The statistics stand in the file's footer, so no rows are read.
                        users = described.column(0).statistics
                        groups.append(
                            _Group(name, number, described.num_rows, users.min, users.max)
                        )
        return groups

    @contextmanager
    def _open_verified(self, name: str) -> Iterator[BufferedReader]:
        """Yield a file that matches the manifest at the beginning and at the end; DatasetError if
        the file differs or cannot be read."""
        path = self.path / name
        try:
            with open_regular(path) as file:
                self._compare(name, file)
                yield file
                self._compare(name, file)
        except (OSError, pa.ArrowException) as error:
            problem = getattr(error, "strerror", None) or error
            raise DatasetError(
                f"{path}: listed in the manifest, cannot be read: {problem}; "
                "prepare the dataset again"
            ) from None

    def _compare(self, name: str, file: BufferedReader) -> None:
        """Check the digest of a file, unless its present state was checked already.

        The digest takes a pass of its own over the file, so memory holds no bytes.
        """
        status = os.fstat(file.fileno())
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if state == self._checked.get(name):
            return
        file.seek(0)
        found, listed = hashlib.file_digest(file, "sha256").hexdigest(), self.manifest.parts[name]
        if found != listed.sha256:
            raise DatasetError(
                f"{self.path / name}: does not match the manifest: sha256 {found[:12]}, expected "
                f"{listed.sha256[:12]}; open the dataset again if it was replaced, otherwise "
                "prepare it again"
            )
        file.seek(0)
        self._checked[name] = state


def _parquet(content: BufferedReader) -> pq.ParquetFile:
    # No thread of Arrow may hold bytes that came from a Python file. The last thread to release the
    # bytes waits for Python's lock; if Python exits during the wait, Python ends the thread, which
    # aborts the process ("terminate called without an active exception"). So Arrow's threads read
    # nothing: `pre_buffer` is off here, and ``use_threads`` in every read of groups.
    return pq.ParquetFile(content, pre_buffer=False)


def read_buffer(file: BufferedReader) -> pa.Buffer:
    """Return the bytes of a newly opened file, in memory of Arrow."""
    # The bytes stay out of Python's memory for the reason in `_parquet`, and out of Arrow's default
    # pool, because that pool keeps freed memory.
    size = os.fstat(file.fileno()).st_size
    content = pa.allocate_buffer(size, memory_pool=pa.system_memory_pool())
    return content.slice(0, file.readinto(content))


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return the values of a column of numbers without nulls."""
    # `ChunkedArray.to_numpy` would import pandas, if installed.
    chunks = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    empty = np.empty(0, dtype=column.type.to_pandas_dtype())
    return np.concatenate([empty, *chunks])


def number_column(values: NDArray[Any]) -> pa.Array:
    """Return a column of numbers or truth values, without nulls."""
    # `pa.array` would import pandas, if installed, which takes longer than a small training.
    content = np.packbits(values, bitorder="little") if values.dtype == bool else values
    buffers = [None, pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)

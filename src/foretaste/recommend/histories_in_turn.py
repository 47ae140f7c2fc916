"""Histories of all users of a run, read as they come to their turn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import real_path
from foretaste.data.histories import Histories, sorted_pairs
from foretaste.data.part_files import PAIR_COLUMNS, integers
from foretaste.errors import DatasetError, RunError
from foretaste.runs.run import HISTORIES, Run

_USERS_AT_ONCE = 1 << 16
"""Of a `HistoriesInTurn`: their file has row groups of a million pairs."""


class HistoriesInTurn:
    """The histories of a run's users in order; those of some consecutive ones are held."""

    def __init__(self, run: Run) -> None:
        self._path = run.path / HISTORIES
        self._num_users = run.config.dataset.num_users
        self._num_items = run.config.dataset.num_all_items
        self._users = range(0)
        self._histories = Histories.empty(num_users=0, num_items=self._num_items)

    def rows(self, index: NDArray[np.integer]) -> Histories:
        """The histories of ascending users; RunError where the file does not fit."""
        first, end = int(index[0]), int(index[-1]) + 1
        if not self._users.start <= first < end <= self._users.stop:
            self._users = range(first, max(end, min(first + _USERS_AT_ONCE, self._num_users)))
            self._histories = self._read(self._users)
        return self._histories.rows(index - self._users.start)

    def _read(self, users: range) -> Histories:
        none = np.empty(0, dtype=np.int32)
        user_index, item_index = [none], [none]
        try:
            with pq.ParquetFile(real_path(self._path)) as file:
                for number in range(file.num_row_groups):
                    found = file.metadata.row_group(number).column(0).statistics
                    if found is not None and (found.max < users.start or found.min >= users.stop):
                        continue
                    table = file.read_row_group(number, columns=PAIR_COLUMNS)
                    group_users, group_items = (integers(table[name]) for name in PAIR_COLUMNS)
                    rows = slice(*np.searchsorted(group_users, (users.start, users.stop)))
                    user_index.append(group_users[rows] - np.int32(users.start))
                    item_index.append(group_items[rows])
            return sorted_pairs(
                np.concatenate(user_index),
                np.concatenate(item_index),
                num_users=len(users),
                num_items=self._num_items,
                where="its pairs",
            )
        except DatasetError as error:
            raise RunError(f"{self._path} does not fit config.json: {error}") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{self._path}: cannot be read: {error}") from error

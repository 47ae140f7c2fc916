"""The run directory: one training, and all that is needed to answer from it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.atomic import remove_leftovers
from foretaste._util.files import open_regular, real_path
from foretaste._util.formatting import did_you_mean
from foretaste._util.settings import checked
from foretaste.data.histories import Histories
from foretaste.data.ids import IdTable
from foretaste.data.manifest import FILE_NAME
from foretaste.data.part_files import buffer_of, pairs_in, read_table
from foretaste.errors import DatasetError, RunError
from foretaste.runs.checkpoint_files import (
    STATE,
    WEIGHTS,
    BestWeights,
    RowsOf,
    SavedState,
    SavedTensors,
    StateFile,
)
from foretaste.runs.config import RunConfig, WrittenFile, read_run_config
from foretaste.runs.log import MetricsLog, RunHistory, final_evaluation
from foretaste.runs.paths import (
    CONFIG,
    METRICS,
    lock_holder,
    new_run_directory,
    reading,
    training_lock,
    writing,
)

if TYPE_CHECKING:
    from torch import Tensor

    from foretaste.data.dataset import Dataset
    from foretaste.evaluation.result import Evaluation

USERS = "users.parquet"
ITEMS = "items.parquet"
HISTORIES = "histories.parquet"

_COLUMNS = pa.schema(
    [("user_index", pa.int32()), ("item_index", pa.int32()), ("in_training", pa.bool_())]
)

ROWS_AT_ONCE, ROW_GROUP = 1 << 25, 1 << 20
"""Of the histories: about a gigabyte is in memory while they are written, and a row group."""


class Run:
    """An open run directory; make one with ``Run.create`` or ``Run.open``.

    Answers without the dataset it was trained on. ``log`` is its ``metrics.jsonl``, ``weights`` are
    its best.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.log = MetricsLog(path / METRICS)
        owner = {"config_sha256": config.digest()}
        self.weights = BestWeights(path, self.log, owner)
        self._state = StateFile(path, self.log, owner)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.config.model})"

    @classmethod
    def create(cls, path: Path | str, *, config: RunConfig, dataset: Dataset) -> Run:
        """Make the directory with its config, ids, histories and an empty log, at one stroke.

        Raises RunError when ``path`` exists and is not an empty directory.
        """
        path = Path(path)
        assert config.dataset.digest == dataset.manifest.digest, "config of another dataset"
        with new_run_directory(path) as directory:
            dataset.users.write(directory / USERS)
            dataset.items.write(directory / ITEMS)
            write_histories(directory / HISTORIES, dataset)
            files = {name: WrittenFile.of(directory / name) for name in (USERS, ITEMS, HISTORIES)}
            config = replace(config, files=files)
            (directory / CONFIG).write_text(config.to_json(), encoding="utf-8", newline="\n")
            MetricsLog(directory / METRICS).declare()
        return cls(path, config)

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open a run; RunError names the file that is missing, torn, changed or foreign."""
        path = checked("run", path, Path)
        if not path.is_dir():
            meant = did_you_mean(path, holding=CONFIG)
            raise RunError(f"{path} is not a run: there is no such directory{meant}")
        if not os.path.lexists(path / CONFIG):
            if os.path.lexists(path / FILE_NAME):
                raise RunError(
                    f"{path} is a dataset, not a run; train on it with foretaste train MODEL "
                    f"{path}, and name the run"
                )
            raise RunError(f"{path} is not a run directory: it has no {CONFIG}")
        run = cls(path, read_run_config(path / CONFIG))
        with reading(run.log.path), open_regular(run.log.path):
            pass  # the log is there; it is read once it is asked for
        for name in (USERS, ITEMS, HISTORIES):
            run.check_is_unchanged(name)
        return run

    @classmethod
    def unfinished(cls, path: Path) -> Run | None:
        """The run at ``path`` whose training has not come to its end; None where there is none."""
        with suppress(RunError):
            run = cls.open(path)
            return None if run.is_finished else run
        return None

    @cached_property
    def users(self) -> IdTable:
        """All users; those seen in training are the first ``num_train_users``."""
        return self._id_table(USERS, self.config.dataset.num_users)

    @cached_property
    def items(self) -> IdTable:
        """All items; the catalogue is the first ``num_items``."""
        return self._id_table(ITEMS, self.config.dataset.num_all_items)

    @property
    def histories(self) -> Histories:
        """Every kept interaction of every user, one row per entry of ``users``."""
        return self._histories[0]

    @cached_property
    def trained_pairs(self) -> Histories:
        """Those of the histories that it was trained on."""
        histories, in_training = self._histories
        return histories.where(in_training)

    @cached_property
    def _histories(self) -> tuple[Histories, NDArray[np.bool_]]:
        reference = self.config.dataset
        return read_histories(
            self.path / HISTORIES,
            self._content(HISTORIES),
            num_users=reference.num_users,
            num_items=reference.num_all_items,
        )

    @property
    def metrics(self) -> Evaluation | None:
        """The final numbers with their intervals, of the best epoch on the test part.

        Those of the validation part where nothing else was held out; None before the training is
        finished, and where nothing was held out at all.
        """
        return final_evaluation(self.log.read())

    @property
    def history(self) -> RunHistory:
        """The epochs so far, with losses, times and evaluations; none of a closed-form model."""
        return RunHistory(self.log.read())

    @property
    def num_train_users(self) -> int:
        """Users seen in training."""
        return self.config.dataset.num_train_users

    @property
    def num_items(self) -> int:
        """Items of the catalogue."""
        return self.config.dataset.num_items

    @property
    def has_weights(self) -> bool:
        """True where there are weights."""
        return self.weights.are_there

    @property
    def loaded_epoch(self) -> int | None:
        """Epoch of the weights loaded last; None before, and for a model fitted in one pass."""
        return self.weights.loaded_epoch

    @property
    def is_finished(self) -> bool:
        """True where its training came to its end."""
        return self.log.is_finished

    @property
    def training_process(self) -> str | None:
        """The process that is training it now, as ``process 123 on host``; None where none is."""
        return lock_holder(self.path)

    def save_weights(self, state_dict: Mapping[str, Tensor], epoch: int | None = None) -> None:
        """Keep these as the best weights, replacing earlier ones atomically."""
        self.weights.save(state_dict, epoch)

    def load_weights(self) -> dict[str, Tensor]:
        """The best weights, on the CPU; RunError when absent, torn or of another run."""
        return self.open_weights().tensors

    def open_weights(self, rows_of: RowsOf | None = None) -> SavedTensors:
        """The best weights, with their note and its digest; RunError as `load_weights`.

        They are whole and of this training, even while it goes on and replaces them. With
        ``rows_of``, some rows of each tensor.
        """
        return self.weights.load(rows_of)

    @contextmanager
    def in_training(self) -> Iterator[None]:
        """Keep other trainings out of the directory; what a killed one left half-written goes.

        Raises RunError where another process is at it.
        """
        with training_lock(self.path):
            for name in (WEIGHTS, STATE, METRICS):
                remove_leftovers(self.path / name)
            yield

    def begin_anew(self) -> None:
        """Forget all that an earlier start came to; RunError, with the run as it was, where the log
        is damaged."""
        first = self.log.lines()[:1]
        self._discard(WEIGHTS)
        self.log.cut(first)

    def go_on_from(self, saved: SavedState, **resumed: Any) -> None:
        """Cut the log to what it was when a state was saved; note with what training goes on."""
        self.log.cut(self.log.lines_until(saved.log_bytes), "resume", **resumed)

    def save_state(self, tensors: Mapping[str, Tensor], position: Mapping[str, Any]) -> None:
        """Replace the saved training state atomically; it remembers how long the log is now."""
        self._state.save(tensors, position)

    def load_state(self, rows_of: RowsOf | None = None) -> SavedState | None:
        """The saved training state, None where there is none; the log keeps what came after it.

        Raises RunError where the state or the log is torn, was changed, or is of another run.
        """
        return self._state.load(rows_of)

    def discard_state(self) -> None:
        """Remove the saved training state, which nobody needs any more."""
        self._discard(STATE)

    def _discard(self, name: str) -> None:
        with writing(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def check_is_unchanged(self, name: str) -> None:
        """RunError where a file that was written with the run is missing or not as it was."""
        written = self.config.files.get(name)
        with reading(self.path / name):
            is_unchanged = written is not None and written.is_at(self.path / name)
        if not is_unchanged:
            raise self._changed(name)

    def _content(self, name: str) -> pa.Buffer:
        """The bytes of such a file, checked again: the run may have been opened long ago."""
        with reading(self.path / name), open_regular(self.path / name) as file:
            content = buffer_of(file)
        if hashlib.sha256(content).hexdigest() != self.config.files[name].sha256:
            raise self._changed(name)
        return content

    def _changed(self, name: str) -> RunError:
        return RunError(
            f"{self.path / name} is torn or was changed: its sha256 is not the one in {CONFIG}"
        )

    def _id_table(self, name: str, expected: int) -> IdTable:
        table = IdTable.read(self.path / name, self._content(name))
        if len(table) != expected:
            raise RunError(
                f"{self.path / name} has {len(table)} rows where {CONFIG} says {expected}"
            )
        return table


def write_histories(path: Path, dataset: Dataset) -> None:
    """Write ``user_index`` and ``item_index``, int32, and ``in_training``, boolean, of everything.

    Of a large dataset some users at a time are in memory.
    """
    num_parts = 1 + dataset.manifest.num_interactions // ROWS_AT_ONCE
    bounds = [*dataset.user_bounds(num_parts)[:-1], dataset.manifest.num_users]
    rows = _COLUMNS.empty_table()
    with pq.ParquetWriter(real_path(path), _COLUMNS, compression="zstd") as writer:
        for users in starmap(range, pairwise(bounds)):
            everything = dataset.all_interactions(users)
            columns = [
                pa.array(everything.row_index() + np.int32(users.start)),
                pa.array(everything.item_index),
                pa.array(dataset.in_training(everything, users)),
            ]
            rows = pa.concat_tables([rows, pa.table(columns, schema=_COLUMNS)]).combine_chunks()
            num_rows = len(rows)
            if users.stop < dataset.manifest.num_users:  # whole row groups, whatever the parts
                num_rows -= num_rows % ROW_GROUP
            if num_rows:
                writer.write_table(rows.slice(0, num_rows), ROW_GROUP)
            rows = rows.slice(num_rows)


def read_histories(
    path: Path, content: pa.Buffer, *, num_users: int, num_items: int
) -> tuple[Histories, NDArray[np.bool_]]:
    """The histories of these bytes, which ``path`` has; RunError where they do not fit the given
    numbers."""
    try:
        table = read_table(path, content)
    except DatasetError as error:
        raise RunError(str(error)) from error
    try:
        histories = pairs_in(table, num_users=num_users, num_items=num_items, where="its pairs")
    except DatasetError as error:
        raise RunError(f"{path} does not fit config.json: {error}") from error
    in_training = [np.zeros(0, dtype=np.uint8)]
    for chunk in table["in_training"].chunks:
        # Bits have no DLPack; ``to_numpy`` imports pandas, and ``cast`` Arrow's functions.
        bits = np.unpackbits(np.frombuffer(chunk.buffers()[1], dtype=np.uint8), bitorder="little")
        in_training.append(bits[chunk.offset : chunk.offset + len(chunk)])
    return histories, np.concatenate(in_training).astype(bool)

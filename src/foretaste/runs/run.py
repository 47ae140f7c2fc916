"""The run directory: one training, with all files that answers need."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretaste._util.files import open_regular, real_path, remove_leftovers, replace_directory
from foretaste._util.formatting import did_you_mean
from foretaste._util.settings import from_document, validate
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.features import Features
from foretaste.data.histories import Histories
from foretaste.data.ids import IdTable
from foretaste.data.manifest import FILE_NAME
from foretaste.data.part_files import (
    PAIR_COLUMNS,
    POSITION_COLUMN,
    number_column,
    numbers,
    read_buffer,
)
from foretaste.errors import DatasetError, RunError, SettingError
from foretaste.models.registry import Definition, build_model, config_class
from foretaste.runs.config import RunConfig, WrittenFile, read_run_config
from foretaste.runs.files import (
    CONFIG,
    FEATURES,
    HISTORIES,
    ITEMS,
    METRICS,
    SEEN,
    STATE,
    USERS,
    WEIGHTS,
    RowsOf,
    SavedTensors,
    read_tensors,
    reading,
    save_tensors,
    writing,
)
from foretaste.runs.log import MetricsLog, final_evaluation, history_of
from foretaste.runs.places import (
    LOCK,
    check_is_run,
    has_tensorflow,
    lock_holder,
    named_path,
    new_run_directory,
    next_to,
    resume_command,
    training_lock,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from foretaste.evaluation.result import Evaluation
    from foretaste.models.base import RecommenderModel
    from foretaste.models.config import ModelConfig

_COLUMNS = pa.schema(
    [("user_index", pa.int32()), ("item_index", pa.int32()), ("in_training", pa.bool_())]
)
_POSITION = pa.field(POSITION_COLUMN, pa.int32())

ROWS_AT_ONCE, ROW_GROUP = 1 << 25, 1 << 20
"""Pairs of the histories that are in memory during writing (about a gigabyte), and pairs of a row
group."""


class Run:
    """An open run directory; make one with ``Run.create`` or ``Run.open``.

    It answers without its dataset. ``log`` is its ``metrics.jsonl``.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.log = MetricsLog(path / METRICS)
        self.loaded_epoch: int | None = None
        """Epoch of the weights loaded last; None before that, and for closed-form models."""
        self.loaded_digest: str | None = None
        """Digest of the weights loaded last."""
        owner = {"config_sha256": config.digest()}
        self._of_weights = {**owner, "content": "weights"}
        self._of_state = {**owner, "content": "training state"}

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.config.model})"

    @classmethod
    def create(
        cls, path: Path | str, *, config: RunConfig, dataset: Dataset, overwrite: bool = False
    ) -> Run:
        """Create the directory with its config, ids, histories and an empty log, atomically.

        ``overwrite`` replaces a run. Raises RunError if ``path`` holds anything else, or if another
        process trains that run.
        """
        path = Path(path)
        assert config.dataset.digest == dataset.manifest.digest, "config of another dataset"
        with new_run_directory(path, overwrite=overwrite) as directory:
            dataset.users.write(directory / USERS)
            dataset.items.write(directory / ITEMS)
            write_histories(directory / HISTORIES, dataset)
            names = [USERS, ITEMS, HISTORIES]
            features = dataset.features
            if features is not None and model_config(config, directory / CONFIG).keeps_features:
                pq.write_table(features.table(), directory / FEATURES, compression="zstd")
                names.append(FEATURES)
            if (seen := dataset.seen) is not None:
                write_pairs(directory / SEEN, seen)
                names.append(SEEN)
            files = {name: WrittenFile.of(directory / name) for name in names}
            config = replace(config, files=files)
            (directory / CONFIG).write_text(config.to_json(), encoding="utf-8", newline="\n")
            MetricsLog(directory / METRICS).declare()
        return cls(path, config)

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open a run; RunError for a file that is missing, torn, changed or foreign."""
        path = validate("run", path, Path)
        run = cls(path, read_config(path))
        with reading(run.log.path), open_regular(run.log.path):
            pass  # the log exists; it is read on first use
        for name in run.written_once:
            run.check_is_unchanged(name)
        return run

    @classmethod
    def unfinished(cls, path: Path) -> Run | None:
        """Return the run at ``path`` if its training is unfinished; None if it is no such run."""
        with suppress(RunError):
            run = cls.open(path)
            return None if run.is_finished else run
        return None

    @classmethod
    def next(cls, place: Path) -> Run | None:
        """Return the run in ``NAME.next`` to replace the one at ``place``; None without one."""
        with suppress(RunError):
            run = cls.open(next_to(place))
            if run.place != place:
                return None
            with suppress(RunError):
                # A kill may have left the replaced run there, after the two had changed places.
                return run if run.config.created >= read_config(place).created else None
            return run
        return None

    @classmethod
    def to_resume(cls, path: Path | str) -> Run:
        """Return the run for `resume`: the replacement of the run at ``path``, else that run."""
        path = named_path(validate("run", path, Path))
        return cls.next(path) or cls.open(path)

    @property
    def place(self) -> Path:
        """The run's final directory: ``NAME`` even while it is trained in ``NAME.next``."""
        beside, here = self.config.request["beside"], named_path(self.path)
        if beside.get("overwrite") and (name := Path(beside.get("run") or "").name):
            place = here.with_name(name)
            return place if next_to(place) == here else self.path
        return self.path

    @property
    def written_once(self) -> tuple[str, ...]:
        """Names of the files that are written with the run and never change."""
        return tuple(dict.fromkeys((USERS, ITEMS, HISTORIES, *self.config.files)))

    @cached_property
    def users(self) -> IdTable:
        """All users; those seen in training are the first ``num_train_users``."""
        return self._id_table(USERS, self.config.dataset.num_users)

    @cached_property
    def items(self) -> IdTable:
        """All items; the model lists the first ``num_items``."""
        return self._id_table(ITEMS, self.config.dataset.num_all_items)

    @property
    def histories(self) -> Histories:
        """All interactions: a row per entry of ``users``, with positions if the model uses them."""
        return self._histories[0]

    @cached_property
    def seen(self) -> Histories | None:
        """Items that lists of each user leave out, and that no model learned, one row per entry of
        ``users``; None if the data were prepared without dislikes."""
        if SEEN not in self.config.files:
            return None
        try:
            table = pq.read_table(self._content(SEEN), use_threads=False)
            return Histories.from_sorted(
                *(numbers(table[name]) for name in PAIR_COLUMNS),
                num_users=self.config.dataset.num_users,
                num_items=self.config.dataset.num_all_items,
            )
        except (LookupError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{self.path / SEEN}: cannot be read: {error}") from error

    @cached_property
    def trained_pairs(self) -> Histories:
        """The interactions of the histories that were in training."""
        histories, in_training = self._histories
        return histories.where(in_training)

    @cached_property
    def _histories(self) -> tuple[Histories, NDArray[np.bool_]]:
        content, dataset = self._content(HISTORIES), self.config.dataset
        try:
            return read_histories(
                content,
                num_users=dataset.num_users,
                num_items=dataset.num_all_items,
                order=model_config(self.config, self.path / CONFIG).uses_order,
            )
        except (ValueError, pa.ArrowException) as error:
            raise RunError(f"{self.path / HISTORIES}: cannot be read: {error}") from error

    @property
    def features(self) -> Features | None:
        """The features of the items that its answers read; None if they read none."""
        if FEATURES not in self.config.files:
            return None
        try:
            table = pq.read_table(self._content(FEATURES), use_threads=False)
            return Features.of_table(table, self.num_items)
        except (LookupError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{self.path / FEATURES}: cannot be read: {error}") from error

    @property
    def metrics(self) -> Evaluation | None:
        """The final metrics with their intervals, of the best epoch on the test part.

        Without a test part they belong to the validation part. None before the training is
        finished, and if nothing was held out.
        """
        return final_evaluation(self.log.read())

    @property
    def history(self) -> list[dict[str, Any]]:
        """The epochs so far in order, each a dict of its numbers; empty for closed-form models.

        All epochs have ``epoch``, ``step``, ``loss``, ``train_s`` and ``samples_per_s``. Some
        models and precisions add others, such as ``beta`` and ``loss_scale``. Evaluated epochs have
        their metrics too: ``validation/ndcg@10``.
        """
        return history_of(self.log.read())

    @property
    def num_train_users(self) -> int:
        """Users seen in training."""
        return self.config.dataset.num_train_users

    @cached_property
    def num_items(self) -> int:
        """Items that its model lists: those seen in training and, if it uses features, new ones."""
        settings: ModelConfig = model_config(self.config, self.path / CONFIG)
        return settings.num_listed(
            self.config.dataset.num_items, self.config.dataset.num_listed_items
        )

    @property
    def has_weights(self) -> bool:
        """True if the file of weights exists."""
        return os.path.lexists(self.path / WEIGHTS)

    @property
    def needs_weights(self) -> bool:
        """True if the log has an evaluation or the summary; weights must then exist."""
        return any(event["event"] in ("evaluation", "summary") for event in self.log.read())

    @property
    def is_finished(self) -> bool:
        """True if its training is finished."""
        return self.log.summary is not None

    def why_unfinished(self) -> str:
        """Return the reason why a training is not finished, and what to do, for people."""
        last = self.log.read()[-1]
        if last["event"] == "failed":
            return f"the training failed: {last['stopped_because']}"
        return f"the training is not finished; resume with: {resume_command(self.place)}"

    @property
    def training_process(self) -> str | None:
        """The process that trains it now, as ``process 123 on host``; None if there is none."""
        return lock_holder(self.path)

    def save_weights(self, state_dict: Mapping[str, Tensor], epoch: int | None = None) -> None:
        """Save these as the best weights; earlier ones are replaced atomically."""
        save_tensors(self.path / WEIGHTS, state_dict, self._of_weights, {"epoch": epoch})

    def load_weights(self) -> dict[str, Tensor]:
        """Return the best weights, on the CPU; RunError if absent, torn or of another run."""
        return self.open_weights().tensors

    def open_weights(self, rows_of: RowsOf | None = None) -> SavedTensors:
        """Return the best weights, with note and digest; RunError as `load_weights`.

        They are one complete version, even while the training replaces them. With ``rows_of``, only
        some rows of each tensor.
        """
        if not self.has_weights:
            raise RunError(self._why_weights_are_missing())
        weights = read_tensors(self.path / WEIGHTS, self._of_weights, rows_of)
        self.loaded_epoch, self.loaded_digest = weights.note["epoch"], weights.digest
        return weights

    def _why_weights_are_missing(self) -> str:
        if self.needs_weights:
            return f"{self.path / WEIGHTS} is missing: the run is not whole"
        if process := self.training_process:
            return (
                f"{self.path} has no {WEIGHTS} yet: it is being trained by {process}; wait for "
                "its first evaluation"
            )
        return f"{self.path} has no {WEIGHTS}: nothing was evaluated, and {self.why_unfinished()}"

    @contextmanager
    def in_training(self) -> Iterator[None]:
        """Lock the run, and the run it replaces, for training; remove a killed run's leftovers.

        Raises RunError if another process trains either.
        """
        replaces = self.place != self.path and self.place.is_dir()
        with training_lock(self.place) if replaces else nullcontext(), training_lock(self.path):
            for name in (WEIGHTS, STATE, METRICS):
                remove_leftovers(self.path / name)
            yield

    def take_place(self) -> None:
        """Move a finished run, whose lock this process has, to its `place`; the run there goes."""
        place = self.place
        with writing(place):
            if place.exists():
                check_is_run(place)
            self.discard_state()
            (self.path / LOCK).unlink(missing_ok=True)
            replace_directory(self.path, place)

    def reset(self) -> None:
        """Discard weights and log of an earlier start. If the log is damaged, raises RunError and
        changes nothing."""
        # Read the whole log first, so that a damaged log is an error before anything is removed.
        first = self.log.lines()[:1]
        self._discard(WEIGHTS)
        self.log.cut(first)

    def resume_from(self, saved: SavedTensors, **resumed: Any) -> None:
        """Cut the log to its length when a state was saved, and add a ``resume`` event."""
        self.log.cut(self.log.lines_until(saved.note["log_bytes"]), "resume", **resumed)

    def save_state(self, tensors: Mapping[str, Tensor], position: Mapping[str, Any]) -> None:
        """Replace the saved training state atomically; its note has the log's present length."""
        # Later lines of the log are cut at a resume and written again.
        note = {"log_bytes": self.log.flush(), "position": dict(position)}
        save_tensors(self.path / STATE, tensors, self._of_state, note)

    def load_state(self, rows_of: RowsOf | None = None) -> SavedTensors | None:
        """Return the saved training state; None if there is none. The log is not cut.

        The note has ``position`` and ``log_bytes``, the length of the log when it was saved.

        Raises RunError if the state or the log is torn, changed, or of another run.
        """
        path = self.path / STATE
        if not os.path.lexists(path):
            return None
        try:
            saved = read_tensors(path, self._of_state, rows_of)
            self.log.lines_until(saved.note["log_bytes"])
        except RunError as error:
            raise RunError(f"{error}. Remove {path} to begin this training again") from error
        return saved

    def discard_state(self) -> None:
        """Remove the saved training state."""
        self._discard(STATE)

    def _discard(self, name: str) -> None:
        with writing(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def check_is_unchanged(self, name: str) -> None:
        """Raise RunError if a file that was written with the run is missing or changed."""
        written = self.config.files.get(name)
        with reading(self.path / name):
            is_unchanged = written is not None and written.is_at(self.path / name)
        if not is_unchanged:
            raise self._changed(name)

    def _content(self, name: str) -> pa.Buffer:
        """Return a file of the run, checked again: the run may have been opened long ago."""
        with reading(self.path / name), open_regular(self.path / name) as file:
            content = read_buffer(file)
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


def read_config(path: Path) -> RunConfig:
    """Return the run's config before its other files are checked; RunError if torn or absent."""
    if not os.path.lexists(path / CONFIG):
        raise missing_run_error(path)
    return read_run_config(path / CONFIG)


def missing_run_error(path: Path) -> RunError:
    """Return the error for a path without a run's config; it says what is there instead."""
    if path.is_file() or os.path.lexists(path / FILE_NAME):
        kind = "file" if path.is_file() else "dataset"
        return RunError(
            f"{path} is a {kind}, not a run; train on it with foretaste train MODEL {path}, and "
            "name the run"
        )
    if not path.is_dir():
        meant = did_you_mean(path, holding=CONFIG)
        return RunError(f"{path} is not a run: there is no such directory{meant}")
    if has_tensorflow(path):
        return RunError(
            f"{path} has checkpoints of TensorFlow, which cannot be read here: train the model "
            "again, on the same data, and name the run's directory"
        )
    inside = [str(config.parent) for config in sorted(path.glob(f"*/{CONFIG}"))]
    meant = f"; name a run in it: {', '.join(inside[:5])}" if inside else ""
    return RunError(f"{path} is neither a run nor a dataset: it has no {CONFIG}{meant}")


def dataset_of(run: Run, dataset: Dataset | Path | str | None = None) -> Dataset:
    """Return a run's dataset: ``dataset``, its directory, or by default the path from training.

    Raises DatasetError if it is not there, or if it holds other data. Equal numbers of users and
    items are not enough, because their ids may differ.
    """
    reference = run.config.dataset
    if not isinstance(dataset, Dataset):
        path = Path(reference.path) if dataset is None else validate("dataset", dataset, Path)
        if dataset is None and not path.is_dir():
            raise DatasetError(
                f"{run.path} was trained on {path}, which is not there any more; "
                "name its present place with --dataset"
            )
        dataset = open_dataset(path)
    if dataset.manifest.digest != reference.digest:
        raise DatasetError(
            f"{dataset.path} is not the dataset of {run.path}: its digest is "
            f"{dataset.manifest.digest[:12]}, that of {reference.name} was "
            f"{reference.digest[:12]}; prepare it with the same input, settings and seed"
        )
    return dataset


def load_model(run: Run, device: str | torch.device = "auto") -> RecommenderModel:
    """Return the trained model of a run on ``device``, ready to answer (not to train).

    Its weights are a copy in memory, so later changes of the file do not reach them.

    Raises RunError, with the first difference, if settings or weights do not fit the model.
    """
    # Import torch here, because it takes 1.1 s: a wrong path is an error before that.
    import torch

    from foretaste.models.memory import check_model_fits
    from foretaste.ops.device import resolve_device

    device = validate("device", device, torch.device | str)
    if not isinstance(device, torch.device):
        device = resolve_device(device)
    config = model_config(run.config, run.path / CONFIG)
    definition = Definition(run.config.model, config, run.num_train_users, run.num_items)
    check_model_fits(definition, device)
    model = empty_model(run)
    weights = run.open_weights()
    check_weights(run, model, weights)
    model.load_state_dict(weights.tensors, assign=True)
    return model.to(device).eval()


def empty_model(run: Run) -> RecommenderModel:
    """Return the model of a run without its weights, whose parameters take no memory."""
    import torch

    from foretaste.ops.histories import HistoryTensors

    config = model_config(run.config, run.path / CONFIG)
    with torch.device("meta"):
        model = build_model(run.config.model, config, run.num_train_users, run.num_items)
    if (features := run.features) is not None:
        rows = features.histories
        own = HistoryTensors.from_numpy(rows.offsets, rows.item_index, rows.num_items, "cpu")
        take: Any = model.take_features
        take(own)
    return model


def model_config(config: RunConfig, path: Path) -> Any:
    """Return the settings of a run's model, an instance of its config class.

    RunError with ``path``, the file of the settings, if they do not fit the model.
    """
    try:
        return from_document(config_class(config.model), config.model_config)
    except SettingError as error:
        raise RunError(f"{path}: {error}") from error


def check_weights(run: Run, model: RecommenderModel, weights: SavedTensors) -> None:
    """Raise RunError unless these are finite weights of that model."""
    import torch

    path, name_of_model = run.path / WEIGHTS, run.config.model
    model.expect(weights.tensors)
    expected = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: list(tensor.shape) for name, tensor in weights.tensors.items()}
    for name in sorted(expected | found):
        here, shape = found.get(name, "none"), expected.get(name, "none")
        if here != shape:
            raise RunError(f"{path}: {name!r} has shape {here}, {name_of_model} expects {shape}")
        tensor = weights.tensors[name]
        # `aminmax` is one pass; `isfinite` of all would make a tensor of the same size.
        extremes = torch.aminmax(tensor) if tensor.numel() else ()
        if not all(torch.isfinite(extreme) for extreme in extremes):
            raise RunError(f"{path}: {name!r} holds numbers that are not finite")


def write_pairs(path: Path, pairs: Histories) -> None:
    """Write pairs without an order: ``user_index`` and ``item_index``, int32."""
    columns = [pairs.row_index(), pairs.item_index]
    table = pa.table([*map(number_column, columns)], names=PAIR_COLUMNS)
    pq.write_table(table, real_path(path), ROW_GROUP, compression="zstd")


def write_histories(path: Path, dataset: Dataset) -> None:
    """Write all interactions: int32 ``user_index``, ``item_index``, boolean ``in_training``.

    If the data have an order, int32 ``position`` is a fourth column. Only some users of a large
    dataset are in memory at a time.
    """
    num_parts = 1 + dataset.manifest.num_interactions // ROWS_AT_ONCE
    bounds = [*dataset.user_bounds(num_parts)[:-1], dataset.manifest.num_users]
    schema = _COLUMNS.append(_POSITION) if dataset.manifest.has_order else _COLUMNS
    rows = pa.Table.from_batches([], schema)
    with pq.ParquetWriter(real_path(path), schema, compression="zstd") as writer:
        for users in starmap(range, pairwise(bounds)):
            everything = dataset.all_interactions(users)
            columns = [
                number_column(everything.row_index() + np.int32(users.start)),
                number_column(everything.item_index),
                number_column(dataset.in_training(everything, users)),
            ]
            if everything.position is not None:
                columns.append(number_column(everything.position))
            rows = pa.concat_tables([rows, pa.table(columns, schema=schema)]).combine_chunks()
            num_rows = len(rows)
            # Only whole row groups until the end, so that the file does not depend on the parts.
            if users.stop < dataset.manifest.num_users:
                num_rows -= num_rows % ROW_GROUP
            if num_rows:
                writer.write_table(rows.slice(0, num_rows), ROW_GROUP)
            rows = rows.slice(num_rows)


def read_histories(
    content: pa.Buffer, *, num_users: int, num_items: int, order: bool
) -> tuple[Histories, NDArray[np.bool_]]:
    """Return the histories in the bytes of their file, and a mask of the pairs that were in
    training. With ``order`` they have positions, if the file has them."""
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        names = [name for name in file.schema_arrow.names if order or name != POSITION_COLUMN]
        table = file.read(names, use_threads=False)
    histories = Histories.from_sorted(
        numbers(table["user_index"]),
        numbers(table["item_index"]),
        num_users=num_users,
        num_items=num_items,
        position=numbers(table[POSITION_COLUMN]) if POSITION_COLUMN in names else None,
    )
    # The bits are unpacked by hand: they have no DLPack, `to_numpy` imports pandas, and `cast`
    # would load Arrow's functions.
    in_training = [np.zeros(0, dtype=np.uint8)]
    for chunk in table["in_training"].chunks:
        bytes_of = np.frombuffer(chunk.buffers()[1], dtype=np.uint8)
        bits = np.unpackbits(bytes_of, bitorder="little")
        in_training.append(bits[chunk.offset : chunk.offset + len(chunk)])
    return histories, np.concatenate(in_training).astype(bool)

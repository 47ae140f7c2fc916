"""A prepared dataset directory, read as arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretaste._util.formatting import did_you_mean, labelled_lines
from foretaste._util.settings import validate
from foretaste.data.features import Features
from foretaste.data.histories import Histories
from foretaste.data.ids import IdTable
from foretaste.data.manifest import FILE_NAME, SEEN_FILE, UNSEEN, Manifest
from foretaste.data.part_files import (
    FEATURE_COLUMNS,
    POSITION_COLUMN,
    WEIGHT_COLUMN,
    PartFiles,
    numbers,
)
from foretaste.errors import DatasetError, NothingLeftError

Split = Literal["validation", "test"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """Held-out users of one split, one row each: the items that a model may know and must find."""

    split: str
    """``validation`` or ``test``."""

    protocol: str
    """How the dataset was split."""

    seed: int
    """Seed of the split, and key of the draws of negatives and of users."""

    num_train_users: int
    """Bound of the training users: users with a smaller number were in training."""

    num_train_items: int
    """Bound of the training items: items with a smaller number were in training, the others are
    new."""

    user_index: NDArray[np.int32]
    """Numbers of the users, ascending: [U]."""

    history: Histories
    """Items that a model may know: items of training and fold-in and, in the test split, also of
    validation, because a service would know them. All are in the catalogue."""

    known: Histories
    """Items left out of the candidates: the history, and held-out items that a model was trained on
    elsewhere. All are in the catalogue."""

    target: Histories
    """Items to find; items beyond the catalogue are in no model's list."""

    candidates: Histories | None = None
    """Candidates ``fixed``: catalogue items, given with the data, that compete with the targets in
    the ranking; the targets are not among them. None if the data have none."""

    num_trained: NDArray[np.int64] | None = None
    """Number of each user's items in training: [U]. None if training had every history."""

    dataset_digest: str = ""
    """Content digest of the dataset; empty if the data were not prepared."""

    @property
    def num_users(self) -> int:
        return len(self.user_index)

    @property
    def num_items(self) -> int:
        """Items of the catalogue: the dataset's listed items."""
        return self.known.num_items

    @property
    def has_new_items(self) -> bool:
        """True if the catalogue has items that training never saw."""
        return self.num_items > self.num_train_items

    @property
    def new_targets(self) -> Histories:
        """The targets that training never saw."""
        return self.target.where(self.target.item_index >= self.num_train_items)

    @property
    def is_grown(self) -> NDArray[np.bool_] | None:
        """Whether training lacked an item of the user's history: [U]. None if it lacked none."""
        return None if self.num_trained is None else self.history.lengths() > self.num_trained

    def __len__(self) -> int:
        return self.num_users

    def read_by(self, num_items: int) -> HeldOut:
        """Return the same users, with the first ``num_items`` items, which the model reads."""
        return replace(self, history=self.history.within(num_items))

    def rows(self, index: NDArray[np.integer]) -> HeldOut:
        """Return the given rows only, in the given order."""
        return replace(
            self,
            user_index=self.user_index[index],
            history=self.history.rows(index),
            known=self.known.rows(index),
            target=self.target.rows(index),
            candidates=None if self.candidates is None else self.candidates.rows(index),
            num_trained=None if self.num_trained is None else self.num_trained[index],
        )


class Dataset:
    """A prepared dataset; each part is read from disk on first use.

    Each read checks the part against the manifest. A directory that was replaced in the meantime
    therefore raises DatasetError, and never returns other data.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.name = str(path)  # for messages; nobody knows the directory of `fit`
        self.manifest = manifest
        self._files = PartFiles(path, manifest)

    def __repr__(self) -> str:
        return f"Dataset({str(self.path)!r}, {self.manifest.protocol})"

    def __str__(self) -> str:
        """Return what `foretaste prepare` prints: columns, notes, sizes and dropped rows."""
        return labelled_lines(f"Dataset: {self.path}", self.manifest.summary())

    def check(self) -> None:
        """Raise DatasetError with the first file that is missing or differs from the manifest."""
        for name in self.manifest.parts:
            self._files.check(name)

    @cached_property
    def train(self) -> Histories:
        """The training part: one row per training user, over the listed items, no positions."""
        return self._files.read_train(range(self.manifest.num_train_users))

    def train_part(self, users: range, *, order: bool = False) -> Histories:
        """Return the training part of consecutive users: one row each, the first in row 0.

        With ``order`` the rows have positions, if the data have an order. Only the row groups with
        these users are read, one at a time, so memory holds little more than the result. Raises
        DatasetError like ``train``.
        """
        if order and self.manifest.has_order:
            position = self._files.read_column(POSITION_COLUMN, users, np.int32)
            return replace(self.train_part(users), position=position)
        whole = range(self.manifest.num_train_users)
        if users == whole:
            return self.train
        assert users.step == 1, f"{users} leaves some out"
        is_within = whole.start <= users.start <= users.stop <= whole.stop
        assert is_within, f"{users} is no part of {whole}"
        return self._files.read_train(users)

    def train_weights(self, users: range) -> NDArray[np.float32] | None:
        """Return the weight of each interaction of `train_part`, divided by the mean of all
        weights. None if the dataset has no weights. Raises DatasetError like ``train``."""
        mean = self.manifest.mean_weight
        if mean is None:
            return None
        weight: NDArray[np.float32] = self._files.read_column(WEIGHT_COLUMN, users, np.float32)
        return weight / np.float32(mean)

    def user_bounds(self, num_parts: int) -> list[int]:
        """Return bounds of contiguous parts with about equal numbers of interactions.

        The bounds are the first training user of each part, then the number of training users:
        [num_parts + 1]. Part ``r`` begins with the user of row ``N * r // num_parts`` of all ``N``
        rows. A part may be empty. At most one row group is read for each part.
        """
        # Interactions are counted, not users: in skewed data, equal numbers of users are unequal
        # work.
        bounds = self._files.train_users_at(
            [self.manifest.num_interactions * part // num_parts for part in range(1, num_parts)]
        )
        return [0, *bounds, self.manifest.num_train_users]

    @cached_property
    def users(self) -> IdTable:
        """Ids of all users, and the part (``part``) of each."""
        return IdTable.of_rows(self._files.read("users.parquet"))

    @cached_property
    def items(self) -> IdTable:
        """Ids of all items, the catalogue first, then the rest, with the given item columns."""
        return IdTable.of_rows(self._files.read("items.parquet"))

    @cached_property
    def features(self) -> Features | None:
        """The feature values of the items; None if the data were prepared without features."""
        if not self.manifest.feature_columns:
            return None
        values = self._files.read("feature_values.parquet")
        items, rows = (
            numbers(column)
            for column in self._files.read("features.parquet").select(FEATURE_COLUMNS)
        )
        columns, names = (values[name].to_pylist() for name in ("column", "value"))
        return Features(
            histories=Histories.from_pairs(
                rows, items, num_users=len(names), num_items=self.manifest.num_listed_items
            ),
            names=tuple(zip(columns, names, strict=True)),
        )

    @property
    def seen(self) -> Histories | None:
        """Items that each user's lists leave out and no model learned: one row per user.
        None if the data were prepared without dislikes."""
        return self.pairs(SEEN_FILE) if SEEN_FILE in self.manifest.parts else None

    def pairs(self, name: str) -> Histories:
        """Return the pairs of one file outside the training files: one row for every user."""
        # Only held-out interactions have unlisted items.
        is_held_out = name != _candidates_file("test")
        return self._files.read_pairs(
            name,
            num_users=self.manifest.num_users,
            num_items=self.manifest.num_all_items
            if is_held_out
            else self.manifest.num_listed_items,
        )

    def has_split(self, split: Split) -> bool:
        """Return True if anything was held out as ``validation`` or ``test``."""
        validate("split", split, Split)
        return bool(self._target_files(split))

    def heldout(self, split: Split, users: range | None = None, *, order: bool = False) -> HeldOut:
        """Return the users and held-out items of one split.

        Raises DatasetError if the split does not exist, NothingLeftError if protocol unseen found
        nothing to hold out. With ``order`` the histories have positions, if the data have an order.
        With ``users``, only the training interactions of these users are read. Other users then
        have no training items.
        """
        if not self.has_split(split):
            if split == "test" and self.manifest.protocol == UNSEEN:
                raise NothingLeftError(
                    f"{self.path}: {self.manifest.notes[UNSEEN]}, so nothing is held out"
                )
            raise DatasetError(
                f"{self.path}: has no {split} part{self._missing_split_advice(split)}"
            )
        target = self._held_pairs(self._target_files(split))
        user_index = np.flatnonzero(target.lengths()).astype(np.int32)
        num_users, num_items = self.manifest.num_users, self.manifest.num_listed_items
        users = range(self.manifest.num_train_users) if users is None else users
        history = self.train_part(users, order=order).padded(num_users, users.start)
        history = history.rows(user_index)
        fold_in = f"{split}_fold_in.parquet"
        if fold_in in self.manifest.parts:
            history = history.union(self.pairs(fold_in).rows(user_index).within(num_items))
        num_trained = None
        if split == "test" and self.has_split("validation"):
            earlier = self._held_pairs(self._target_files("validation")).rows(user_index)
            num_trained = history.lengths()
            history = history.union(earlier.within(num_items))
        candidates = None
        if self.has_candidates(split):
            candidates = self.pairs(_candidates_file(split)).rows(user_index)
        return HeldOut(
            split=split,
            protocol=self.manifest.protocol,
            seed=self.manifest.seed,
            num_train_users=self.manifest.num_train_users,
            num_train_items=self.manifest.num_items,
            user_index=user_index,
            history=history,
            known=history,
            target=target.rows(user_index),
            candidates=candidates,
            num_trained=num_trained,
            dataset_digest=self.manifest.digest,
        )

    def _missing_split_advice(self, split: Split) -> str:
        """Return the end of the message about a missing split."""
        other: Split = "validation" if split == "test" else "test"
        if self.has_split(other):
            option = f"--split {other} (split={other!r} in Python)"
            return f", only a {other} part; measure on that: {option}"
        return (
            f": under protocol {self.manifest.protocol} everything trains and nothing is held out "
            "to measure on; measure a model of a dataset of another protocol, such as leave-one-out"
        )

    def has_candidates(self, split: Split) -> bool:
        """Return True if the data came with candidates for a split's targets."""
        return _candidates_file(validate("split", split, Split)) in self.manifest.parts

    def all_interactions(self, users: range | None = None) -> Histories:
        """Return all interactions of all or consecutive users, held-out ones too: one row per user,
        with positions if the data have an order."""
        users = range(self.manifest.num_users) if users is None else users
        parts = (self.pairs(name)[users.start : users.stop] for name in self._held_files())
        return reduce(Histories.union, parts, self._train_of(users, order=True))

    def in_training(self, everything: Histories, users: range | None = None) -> NDArray[np.bool_]:
        """Return a mask over the entries of `all_interactions`: True for training interactions."""
        users = range(self.manifest.num_users) if users is None else users
        in_training = np.ones(everything.num_interactions, dtype=bool)
        if files := self._held_files():
            held = self._held_pairs(files)[users.start : users.stop]
            in_training[everything.find(held.where(self._train_of(users).find(held) < 0))] = False
        return in_training

    def _train_of(self, users: range, *, order: bool = False) -> Histories:
        """Return the training part of consecutive users; untrained users have empty rows."""
        end = self.manifest.num_train_users
        known = range(min(users.start, end), min(users.stop, end))
        return self.train_part(known, order=order).padded(len(users))

    def _target_files(self, split: Split) -> list[str]:
        names = (f"{split}.parquet", f"{split}_target.parquet")
        return [name for name in names if name in self.manifest.parts]

    def _held_files(self) -> list[str]:
        others = {*_NOT_PAIRS, _candidates_file("test"), *self.manifest.train_files}
        return [name for name in self.manifest.parts if name not in others]

    def _held_pairs(self, files: list[str]) -> Histories:
        return reduce(Histories.union, map(self.pairs, files))


_NOT_PAIRS = frozenset(
    f"{name}.parquet" for name in ("users", "items", "features", "feature_values", "seen")
)


def _candidates_file(split: Split) -> str:
    return f"{split}_candidates.parquet"


def open_dataset(path: Path | str) -> Dataset:
    """Return the dataset at ``path``, after a check of its version and of every file's digest.

    Raises DatasetError with the file that is missing, foreign or damaged.
    """
    path = validate("path", path, Path)
    # Unlike `Path.is_dir`, `os.path.isdir` raises nothing for odd or long names.
    if not os.path.isdir(path):  # noqa: PTH112
        meant = did_you_mean(path, holding=FILE_NAME)
        raise DatasetError(f"{path}: is not a directory; make one with `foretaste prepare`{meant}")
    dataset = Dataset(path, Manifest.read(path))
    dataset.check()
    return dataset

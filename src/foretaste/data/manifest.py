"""manifest.json: the content and the origin of a dataset directory."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foretaste._util.files import (
    SMALL_BYTES,
    is_name_text,
    open_regular,
    read_document,
    remove_leftovers,
)
from foretaste._util.formatting import short_repr
from foretaste._util.settings import check_settings, from_document
from foretaste._util.signed_json import SHA256, check_signed, other_format, signed_text
from foretaste.errors import DatasetError

FORMAT_VERSION = 4
FILE_NAME = "manifest.json"

RANDOM = "leave-one-out (random)"
"""The protocol of data without times: a hash chooses the held-out items."""

NEW_ITEMS = "new-items"
"""The protocol that holds out items with all of their interactions. Without times a hash chooses
the items, and the protocol is called ``new-items (random)``."""

UNSEEN = "unseen"
"""The protocol of a nightly trial, which holds out pairs that a run's training lacked."""

MATRIX = "matrix"
"""``read_as`` of a SciPy matrix: its row numbers are user ids, its column numbers item ids."""

_PART_NAMES = frozenset(
    f"{part}.parquet"
    for part in (
        *("users", "items", "train", "validation", "test", "test_candidates"),
        *("features", "feature_values", "seen"),
        *("validation_fold_in", "validation_target", "test_fold_in", "test_target"),
    )
)
_OWN_NAMES = _PART_NAMES | {FILE_NAME, "train"}
TRAIN_FILE = "train.parquet"
SEEN_FILE = "seen.parquet"
_TRAIN_PARTITION = re.compile(r"train/part-[0-9]{5,9}\.parquet", re.ASCII)
_NAME_IN_STORE = re.compile(r"[a-z][a-z0-9+.-]+:/")

NUM_TIED = "num_test_users_with_a_tie"
_MOST_TIED = 0.1
"""The printed protocol mentions ties if a larger share of the test users has tied targets."""

_REPEATS = "num_repeated_pairs"
_LEFT_OUT = {
    "num_rows_with_an_empty_id": "with an empty id",
    "num_rows_of_seen_events": "of events that are seen",
    "num_rows_of_other_events": "of other events",
    "num_rows_rated_too_low": "rated too low",
    "num_rows_of_rare_items": "of items with too few users",
    "num_rows_of_inactive_users": "of users with too few rows",
    _REPEATS: "with a user and item that are there already",
    "num_validation_targets_dropped_as_unseen": "held out, with items that training never saw",
    "num_test_targets_dropped_as_unseen": "held out, with items that training never saw",
}
"""The reason for leaving rows out, by the name of their count."""

_MARK = b'"created_by": "foretaste '


@dataclass(frozen=True, kw_only=True)
class Part:
    """One Parquet file of the dataset."""

    num_rows: int
    sha256: str
    """Digest of the file's bytes."""
    content_digest: str
    """Digest of the values in row order; the same from every engine."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a dataset: everything except its rows."""

    protocol: str
    """The split, as printed beside every metric: ``leave-one-out``, ``leave-one-out (random)``,
    ``held-out-users``, ``temporal``, ``new-items``, ``unseen``, ``none``, or ``given`` if the
    source came split."""

    validation: str
    """``hold-out``; ``none`` if training got the validation part or none was given."""

    seed: int
    """Seed of every choice made by hash."""

    num_users: int
    """All users: training users first, then those unseen in training."""

    num_train_users: int
    """Users of the training part: the first ones."""

    num_items: int
    """The catalogue: items of the training part, the first ones."""

    num_all_items: int
    """The listed items and, after them, items without a feature value that only held-out
    interactions have."""

    num_interactions: int
    """Interactions of the training part."""

    counts: dict[str, int]
    """Counts of the rows read, of what each step dropped, and of what each part has, in order."""

    config: dict[str, Any]
    """The requested settings."""

    filters: dict[str, float]
    """The applied filters, by their setting; empty without filters."""

    columns: dict[str, str]
    """The source's column of each role: ``user_id``, ``item_id``, ``rating``, ``time``, ``clock``,
    ``weight`` and ``event``."""

    id_types: dict[str, str]
    """``integer`` or ``text`` for ``user_id`` and ``item_id``."""

    source: list[dict[str, Any]]
    """Each file that was read: its part, path, size in bytes and sha256, and in ``read_as`` how
    text or a matrix was read."""

    engine: str
    """The engine of the steps, and its version."""

    created_by: str
    """The foretaste version that wrote the dataset."""

    parts: dict[str, Part]
    """Every file of the dataset by its name. The training part is ``train.parquet``, or the files
    ``train/part-00000.parquet`` and so on, in the order of their users."""

    train_digest: str = ""
    """Content digest of a training part in several files, computed as for one file; otherwise
    empty."""

    mean_weight: float | None = None
    """Mean weight of the training interactions, which divides the weights for models. None, and
    absent from the file, if interactions have no weights."""

    has_order: bool = False
    """True if every interaction has its place in the history of its user."""

    feature_columns: tuple[str, ...] = ()
    """The columns of features, spelled as in the setting. Empty, and absent from the file,
    without features."""

    num_listed_items: int = 0
    """The catalogue and, after it, other items that have a feature value: the items that lists may
    have. Without features the number is ``num_items``, and absent from the file."""

    notes: dict[str, str] = field(default_factory=dict)
    """Notes for a person, by their subject: titles, suspicious ids, an empty test."""

    format_version: int = FORMAT_VERSION
    """Number of this layout."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.feature_columns:
            object.__setattr__(self, "num_listed_items", self.num_items)

    @property
    def digest(self) -> str:
        """Content digest without pairs that are only seen: equal for equal data, in any engine."""
        others = {SEEN_FILE, *(self.train_files if self.train_digest else ())}
        digests = {
            name: part.content_digest for name, part in self.parts.items() if name not in others
        }
        # Several training files count as one file, so the number of files that an engine writes
        # changes no digest.
        if self.train_digest:
            digests[TRAIN_FILE] = self.train_digest
        # Keys are sorted below, so the order of writing decides nothing.
        described = {"protocol": self.protocol, "seed": self.seed, "parts": digests}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    @property
    def seen_digest(self) -> str:
        """Content digest of the pairs that are only seen; empty without them."""
        return self.parts[SEEN_FILE].content_digest if SEEN_FILE in self.parts else ""

    @property
    def train_files(self) -> list[str]:
        """The files of the training part, in order; mostly one file."""
        return sorted(name for name in self.parts if name.startswith("train"))

    @property
    def has_ties(self) -> bool:
        """True if a hash chose many users' test items among items of the same time."""
        return self.counts.get(NUM_TIED, 0) > _MOST_TIED * self.counts.get("num_test_users", 0)

    def choices(self) -> list[tuple[str, str]]:
        """Return lines for a person, as (label, value): protocol, columns, notes."""
        protocol = self.protocol
        # With a time column the protocol would be another.
        if protocol == RANDOM or (
            protocol == "held-out-users" and self.config.get("protocol") == "auto"
        ):
            protocol += ", because no time column was found (--time-column names one)"
        if protocol.startswith(NEW_ITEMS):
            protocol += (
                "; it looks ahead: users keep what they took later (--protocol temporal does not)"
            )
        if self.has_ties:
            share = self.counts[NUM_TIED] / self.counts["num_test_users"]
            protocol += (
                f" (ties by hash): {share:.0%} of the users have several items at their last time"
            )
        if self.validation != "hold-out":
            protocol += ", no validation part"
        columns = (f"{short_repr(column)} as {role}" for role, column in self.columns.items())
        return [
            ("protocol", protocol),
            ("columns", ", ".join(columns)),
            *self.notes.items(),
        ]

    def has_new_targets(self, split: str) -> bool:
        """Return whether a part holds out items new to training that have a feature."""
        unseen = f"num_{split}_targets_unseen"
        num_unseen = self.counts.get(f"{unseen}_in_training", 0)
        return num_unseen > self.counts.get(f"{unseen}_without_feature", num_unseen)

    def rows(self) -> str:
        """Return a sentence on the numbers of rows read, kept, and left out by reason."""
        reasons: dict[str, int] = {}
        for name, reason in _LEFT_OUT.items():
            if count := self.counts.get(name, 0):
                reasons[reason] = reasons.get(reason, 0) + count
        read, kept = self.counts["num_rows_read"], self.counts["num_interactions"]
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        return f"{read:,} read, {kept:,} kept" + (listed and f"; left out: {listed}")

    @property
    def has_dropped_rows(self) -> bool:
        """True if rows were left out for another reason than repetition."""
        return any(self.counts.get(name, 0) for name in _LEFT_OUT.keys() - {_REPEATS})

    def summary(self) -> list[tuple[str, str]]:
        """Return lines for a person, as (label, value): `choices`, sizes, and dropped rows."""
        counts = {
            name.removeprefix("num_").replace("_", " "): f"{count:,}"
            for name, count in self.counts.items()
        }
        return [*self.choices(), ("digest", self.digest[:12]), *counts.items()]

    def write(self, directory: Path) -> None:
        document = asdict(self) | {"digest": self.digest}
        if self.seen_digest:
            document["seen_digest"] = self.seen_digest
        if self.mean_weight is None:
            del document["mean_weight"]
        if not self.feature_columns:
            del document["feature_columns"], document["num_listed_items"]
        text = signed_text(document, indent=2)
        (directory / FILE_NAME).write_text(text, encoding="utf-8", newline="\n")

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Return a dataset directory's manifest; DatasetError if missing or not foretaste's."""
        path = directory / FILE_NAME
        # `Path.is_file` may raise for odd names.
        if not os.path.isfile(path):  # noqa: PTH113
            if (directory / "metrics.jsonl").is_file():
                raise DatasetError(
                    f"{directory}: is a run, not a dataset; name the dataset that it was trained on"
                )
            raise DatasetError(
                f"{directory}: is not a prepared dataset: it has no {FILE_NAME}. "
                "Make one with `foretaste prepare`"
            )
        try:
            text = read_document(path)
            values = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from None
        version = values.get("format_version") if isinstance(values, dict) else None
        if version != FORMAT_VERSION:
            why = other_format(version, FORMAT_VERSION, "prepare the dataset again")
            raise DatasetError(f"{path}: was written {why}")
        try:
            check_signed(text)
            del values[SHA256], values["digest"]
            values.pop("seen_digest", None)
            return from_document(cls, values)
        except (KeyError, ValueError) as error:
            raise DatasetError(f"{path}: is damaged ({error}); prepare the dataset again") from None


def is_dataset(directory: Path) -> bool:
    """Return True for the directory of a dataset. Other programs write a manifest.json too."""
    # `Path.is_file` may raise for odd names.
    return all(os.path.isfile(directory / name) for name in (FILE_NAME, "items.parquet"))  # noqa: PTH113


def check_output(output: Path, overwrite: bool) -> None:
    """Raise DatasetError if ``output`` may not be written.

    An empty directory may be filled. A prepared dataset is replaced only with ``overwrite``, and
    only if its directory has no other files. Anything else is never replaced.
    """
    if not holds_dataset(output):
        return
    if not overwrite:
        raise DatasetError(
            f"{output}: holds a prepared dataset; replace it with --overwrite "
            "(overwrite=True in Python) or name another"
        )
    others = [
        file
        for file in sorted(output.rglob("*"))
        if (name := file.relative_to(output).as_posix()) not in _OWN_NAMES
        and not _TRAIN_PARTITION.fullmatch(name)
    ]
    if others:
        raise DatasetError(
            f"{others[0]}: is no part of the dataset in its directory and would be lost; move it, "
            "or name another directory"
        )


def holds_dataset(output: Path) -> bool:
    """Return True for a prepared dataset, False for an empty directory or an unused path.

    The leftovers of a killed preparation are removed or put back first. Raises DatasetError for
    anything else, and for a path that cannot be written.
    """
    if not is_name_text(output):
        raise DatasetError(f"{output}: its name is not UTF-8 text; name another")
    # `Path` turns the two slashes of s3a://bucket into one.
    if _NAME_IN_STORE.match(str(output)) and not Path(output.parts[0]).exists():
        raise DatasetError(
            f"{output}: is no folder; write to one that all machines share, and copy that to a "
            "store, manifest.json last: without it there is no dataset"
        )
    remove_leftovers(output)
    try:
        is_new = not output.exists() and not output.is_symlink()
    except OSError as error:
        raise DatasetError(f"{output}: cannot be written: {error.strerror}") from None
    if is_new:
        return False
    if not output.is_dir():
        raise DatasetError(f"{output}: is there already and is not a directory; name another")
    if not any(output.iterdir()):
        return False
    # Other programs write a manifest.json too, and foretaste's file may have been damaged since.
    is_ours = is_dataset(output)
    with suppress(OSError), open_regular(output / FILE_NAME) as file:
        is_ours = is_ours or _MARK in file.read(SMALL_BYTES)
    if not is_ours:
        raise DatasetError(
            f"{output}: is a directory with other files in it, which is never replaced; "
            "name another"
        )
    return True

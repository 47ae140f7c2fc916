"""Checks that a dataset directory is what its manifest says, and that its parts fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foretaste._util.settings import checked
from foretaste.data.content import content_digest, is_in_order
from foretaste.data.dataset import Dataset
from foretaste.data.ids import IdTable, Kind
from foretaste.data.manifest import FILE_NAME, TRAIN_FILE, Manifest
from foretaste.data.part_files import PAIR_COLUMNS, part_bytes
from foretaste.errors import DatasetError, ForetasteError, RunError

_CANDIDATES = "test_candidates.parquet"
_ID_FILES: dict[str, Kind] = {"users.parquet": "user", "items.parquet": "item"}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check, and its outcome."""

    subject: str
    """A file of the directory, or what concerns several."""

    is_ok: bool

    found: str
    """The subject of the check; the problem, with the path of the file, where there is one."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """All checks of one directory."""

    path: Path

    holds: str
    """The kind of directory: ``dataset`` or ``run``."""

    checks: tuple[Check, ...]

    @property
    def is_ok(self) -> bool:
        """True where nothing is wrong."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, each with the path of the file."""
        return [check.found for check in self.checks if not check.is_ok]

    def raise_if_wrong(self) -> None:
        """Raise the first problem, a DatasetError or RunError, if there is one."""
        if not self.problems:
            return
        first, *others = self.problems
        more = f" (and {len(others)} more)" if others else ""
        raise (DatasetError if self.holds == "dataset" else RunError)(first + more)


class Checks:
    """Checks of a directory, made one after the other, with their outcomes."""

    def __init__(self, path: Path) -> None:
        self.outcomes: list[Check] = []
        self._path = path

    def make(self, subject: str, check: Callable[[], str]) -> bool:
        """True where ``check`` returns, with its subject, instead of raising what is wrong."""
        try:
            is_ok, found = True, check()
        except ForetasteError as error:
            is_ok, found = False, str(error)
        except Exception as error:
            # Anything may be in a file that somebody else wrote; none of it may stop the rest.
            is_ok, found = False, f"{self._path / subject}: is damaged: {error!r}"
        self.outcomes.append(Check(subject=subject, is_ok=is_ok, found=found))
        return is_ok


def verify_dataset(path: Path | str) -> Verification:
    """Check every file of a prepared dataset, and whether they fit together.

    Of the manifest its version and digest; of every part its bytes, content digest, columns, order
    and range; of the ids that they are unique and of their kind; of all that no pair is in two
    parts and that training has the users and items it should. What is wrong is in the result, not
    raised.
    """
    path = checked("path", path, Path)
    checks = Checks(path)

    def check_manifest() -> str:
        manifest = Manifest.read(path)
        version, digest = manifest.format_version, manifest.digest[:12]
        return f"format {version}, {manifest.protocol}, digest {digest}"

    if checks.make(FILE_NAME, check_manifest):
        manifest = Manifest.read(path)
        parts = [
            checks.make(name, partial(_check_part, path, name, manifest)) for name in manifest.parts
        ]
        if all(parts):
            checks.make("all parts", lambda: _check_together(path, manifest))
    return Verification(path=path, holds="dataset", checks=tuple(checks.outcomes))


def _check_part(directory: Path, name: str, manifest: Manifest) -> str:
    """Bytes, digest, columns and order of one part; of a file of ids, these too."""
    path, part, kind = directory / name, manifest.parts[name], _ID_FILES.get(name)
    expected = PAIR_COLUMNS if kind is None else [f"{kind}_index", f"{kind}_id"]
    content = part_bytes(path, part.sha256)
    problem = None
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            schema, num_rows = file.schema_arrow, file.metadata.num_rows
            indexes = schema.types[:2] if kind is None else schema.types[:1]
            if schema.names[:2] != expected or any(found != pa.int32() for found in indexes):
                fields = ", ".join(f"{field.name} ({field.type})" for field in schema)
                problem = (
                    f"has columns {fields}, where {' and '.join(expected)} come first and indexes "
                    "are of 32 bits"
                )
            elif (num_rows, digest := content_digest(pa.BufferReader(content))) != (
                part.num_rows,
                part.content_digest,
            ):
                problem = (
                    f"has {num_rows:,} rows with content digest {digest[:12]}, the manifest says "
                    f"{part.num_rows:,} and {part.content_digest[:12]}"
                )
            elif not is_in_order(file):
                problem = "its rows are not in order"
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from None
    if problem is None and kind is not None:
        ids = IdTable.read(path, content)
        found, listed = "integer" if ids.is_integer else "text", manifest.id_types[f"{kind}_id"]
        if found != listed:
            problem = f"ids are {found}, the manifest says {listed}"
        elif pc.count_distinct(ids.table["id"]).as_py() != len(ids):
            problem = "an id is there more than once"
    if problem is not None:
        raise DatasetError(f"{path}: {problem}; prepare the dataset again")
    return f"{part.num_rows:,} rows: bytes, digest, columns, {'order' if kind is None else 'ids'}"


def _check_together(path: Path, manifest: Manifest) -> str:
    """Ranges and overlaps of all parts with pairs, and what training has of users and items."""
    dataset = Dataset(path, manifest)
    if manifest.train_digest:
        _check_whole(path, manifest)
    train = seen = dataset.train.padded(manifest.num_users)
    others = {*_ID_FILES, _CANDIDATES, *manifest.train_files}
    for name in (name for name in manifest.parts if name not in others):
        part = dataset.pairs(name)
        both = seen.union(part)
        num_twice = seen.num_interactions + part.num_interactions - both.num_interactions
        if num_twice:
            raise DatasetError(
                f"{path / name}: {num_twice:,} of its pairs are in an earlier part too; prepare "
                "the dataset again"
            )
        seen = both
        num_known = np.count_nonzero((train.lengths() > 0) & (part.lengths() > 0))
        if name.endswith("_fold_in.parquet") and num_known:
            raise DatasetError(
                f"{path / name}: {num_known:,} of its users are in training too; prepare the "
                "dataset again"
            )
    # Training has the first users, and every item of the catalogue.
    users = np.flatnonzero(train.lengths())
    expected = np.arange(manifest.num_train_users)
    listed = np.flatnonzero(np.array(dataset.users.column("part")) == "train")
    num_missing = manifest.num_items - len(np.unique(train.item_index))
    problem = None
    if num_missing:
        problem = f"lacks {num_missing:,} items of the catalogue"
    elif not np.array_equal(users, expected) or not np.array_equal(listed, expected):
        problem = f"its users are not the first {manifest.num_train_users:,} of users.parquet"
    if problem is not None:
        raise DatasetError(f"{path / TRAIN_FILE}: {problem}; prepare the dataset again")
    return "indexes within range, no pair in two parts, all users and items of training"


def _check_whole(path: Path, manifest: Manifest) -> None:
    """Digest of a training part that is in several files."""
    digest = content_digest(*(path / name for name in manifest.train_files))
    if digest != manifest.train_digest:
        raise DatasetError(
            f"{path / 'train'}: its files have content digest {digest[:12]} together, the manifest "
            f"says {manifest.train_digest[:12]}; prepare the dataset again"
        )

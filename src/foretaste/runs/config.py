"""Config of a run, ``config.json``: all settings that repeat it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import foretaste
from foretaste._util.files import file_sha256, read_document
from foretaste._util.settings import check_settings, fields_of, from_document
from foretaste._util.signed_json import check_signed, other_format, signed_text
from foretaste.data.manifest import MATRIX
from foretaste.errors import RunError, SettingError
from foretaste.runs.files import reading

if TYPE_CHECKING:
    from foretaste.data.dataset import Dataset

FORMAT = "foretaste run"
FORMAT_VERSION = 11
"""Version of the format. It rises whenever any file of a run changes, log and weights included;
other versions are not read."""

Settings = TypeVar("Settings")


def installed_versions() -> dict[str, str]:
    """Return versions of the programs that affect the numbers of a run."""
    return {
        "foretaste": foretaste.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }


@dataclass(frozen=True, kw_only=True)
class DatasetReference:
    """The prepared dataset of a run."""

    name: str
    """Name of its directory."""
    path: str
    """Its path at the time of training."""
    digest: str
    """Content digest of the whole dataset, from its manifest."""
    protocol: str
    """Name of its split, as printed."""
    seed: int
    """Seed of the split; sampled candidates and validation users are drawn by it."""
    num_users: int
    """Number of users, with those unseen in training."""
    num_train_users: int
    """Number of users seen in training; the first ones of ``users.parquet``."""
    num_items: int
    """Number of items seen in training; the first ones of ``items.parquet``."""
    num_all_items: int
    """Number of items, with those never seen in training."""
    feature_columns: tuple[str, ...] = ()
    """The columns of its features, from its manifest. Absent from the file without features."""
    num_listed_items: int = 0
    """Number of items that a model with features lists, the first ones. It is ``num_items``, and
    absent from the file, without features."""
    seen_digest: str = ""
    """Content digest of the pairs that lists leave out and no model learned, from its manifest.
    Empty, and absent from the file, without dislikes."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.feature_columns:
            object.__setattr__(self, "num_listed_items", self.num_items)

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetReference:
        """Refer to an opened dataset."""
        manifest = dataset.manifest
        path = Path(dataset.path).resolve()
        return cls(
            name=path.name,
            path=str(path),
            digest=manifest.digest,
            protocol=manifest.protocol,
            seed=manifest.seed,
            num_users=manifest.num_users,
            num_train_users=manifest.num_train_users,
            num_items=manifest.num_items,
            num_all_items=manifest.num_all_items,
            feature_columns=manifest.feature_columns,
            num_listed_items=manifest.num_listed_items,
            seen_digest=manifest.seen_digest,
        )


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """Size and digest of a file as it was written."""

    num_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def of(cls, path: Path) -> WrittenFile:
        return cls(num_bytes=path.stat().st_size, sha256=file_sha256(path))

    def is_at(self, path: Path) -> bool:
        """Return True if the file at ``path`` is unchanged; OSError if it cannot be read."""
        return path.stat().st_size == self.num_bytes and file_sha256(path) == self.sha256


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings that repeat a run; mappings hold JSON values."""

    model: str
    """Name of the model."""
    model_config: Mapping[str, Any]
    """Settings of the model."""
    asked: Mapping[str, Any]
    """Settings of the training as they were given, ``auto`` included."""
    resolved: Mapping[str, Any]
    """The same settings, with a value in place of every ``auto``, and the model's settings that
    follow others."""
    dataset: DatasetReference
    """The dataset of the training: name, path, digests, protocol, sizes, columns of features, and
    the seed that draws its split, sampled candidates and validation users."""
    request: Mapping[str, Any]
    """The request beside the settings: ``data``, ``needs_features``, and ``beside``, which changes
    no result."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the validation part chose: ``settings``, the number of ``fits``,
    ``select_by``, its ``value`` and its ``value_by_rule``; with ``features`` their ``gain`` from
    ``low`` to ``high`` and the share of ``lists`` with a new item; with ``sample`` its number of
    ``interactions``, and for ``settings`` that it chose the ``value`` and ``value_by_rule`` of fits
    to all of them. Empty without a search."""
    start: Mapping[str, Any] = field(default_factory=dict)
    """The runs of a warm start, with the digests of their weights; empty for random weights."""
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    """Versions of foretaste, Python, torch and numpy."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    """The hardware that affects the numbers: name of the GPU, or number of CPU threads."""
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    """Time when the run began, ISO 8601 in UTC."""
    files: Mapping[str, WrittenFile] = field(default_factory=dict)
    """Length and sha256 of each file that is written once, with the run."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def settings(self) -> dict[str, Any]:
        """`asked` updated by `resolved`, which also has derived settings of the model."""
        return {**self.asked, **self.resolved}

    @property
    def is_of_matrix(self) -> bool:
        """True if users and items are the rows and columns of a SciPy matrix."""
        return any(entry.get("read_as") == MATRIX for entry in self.request["data"]["read"])

    def digest(self) -> str:
        """Return the sha256 of the entries that change the result, equal for equal runs."""
        document = self._document()
        # Weights and states carry this digest, and equal runs have equal files.
        del document["created"], document["dataset"]["name"], document["dataset"]["path"]
        for name in document.pop("request")["beside"]:
            document["asked"].pop(name, None)
            document["resolved"].pop(name, None)
        for origin in document["start"].values():
            if isinstance(origin, dict):
                del origin["path"]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the text of ``config.json``."""
        document = {"format": FORMAT, "format_version": FORMAT_VERSION, **self._document()}
        return signed_text(document, indent=2)

    def _document(self) -> dict[str, Any]:
        document = asdict(self)
        if not self.dataset.feature_columns:
            del document["dataset"]["feature_columns"], document["dataset"]["num_listed_items"]
        if not self.dataset.seen_digest:
            del document["dataset"]["seen_digest"]
        return document


def read_run_config(path: Path) -> RunConfig:
    """Read ``config.json``; RunError if it is torn, changed, foreign or of another version."""
    try:
        with reading(path):
            text = read_document(path)
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is torn or not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RunError(f'{path} is not the config of a foretaste run: no "format": "{FORMAT}"')
    if (number := document.get("format_version")) != FORMAT_VERSION:
        created = document.get("created")
        when = f"on {created[:10]} " if isinstance(created, str) else ""
        why = other_format(number, FORMAT_VERSION, "train again")
        raise RunError(f"{path} was written {when}{why}")
    try:
        check_signed(text)
    except ValueError as error:
        raise RunError(f"{path} is torn or was changed: {error}") from error
    return read_settings(RunConfig, document, path)


def read_settings(kind: type[Settings], values: Mapping[str, Any], path: Path) -> Settings:
    """Return settings of class ``kind``; its fields take the entries of ``values`` by name.

    RunError with ``path``, the file of the values, if they do not fit the class.
    """
    try:
        return from_document(kind, fields_of(kind, values))
    except SettingError as error:
        raise RunError(f"{path} is damaged: {error}") from error

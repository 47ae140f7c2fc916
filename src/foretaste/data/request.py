"""One preparation as a value: raw interactions, and the dataset to make of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from foretaste._util.documents import Document
from foretaste._util.formatting import without_secrets
from foretaste._util.keywords import assign_settings
from foretaste._util.settings import check_settings, to_document
from foretaste.data.config import PrepareConfig, settings_to_repeat
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.manifest import MATRIX, Manifest, is_dataset
from foretaste.data.movielens import named_set
from foretaste.errors import SettingError

DATASETS = Path("datasets")
"""The folder of datasets whose request names no directory."""

OF_DATA = ("items", "source_dir")
"""The fields that a training has too, besides the source and the config."""


@dataclass(frozen=True, kw_only=True)
class PrepareRequest:
    """The whole of one preparation; the command line and `prepare` make equal requests."""

    source: Any
    """Any source of `prepare`; in a training also a prepared dataset or its directory."""

    config: PrepareConfig = field(default_factory=PrepareConfig)
    """The columns to read, the interactions to keep, and their split."""

    items: object = None
    """A file, frame or database with the item id and further columns such as a title."""

    source_dir: Path | None = None
    """The folder with the files or the archive of a named set, in place of a download."""

    like: Path | None = None
    """A run or dataset whose settings of preparation and id types are repeated."""

    output: Path | None = None
    """Directory of the dataset; by default ``root/<name>-<digest of source and settings>``."""

    root: Path = DATASETS
    """The folder of datasets without an ``output``."""

    overwrite: bool = False
    """Replace the dataset at ``output``."""

    def __post_init__(self) -> None:
        check_settings(self)
        # One file in a list is that file, so a command line and a call make the same request.
        source = self.source
        if isinstance(source, list | tuple) and all(isinstance(one, str | Path) for one in source):
            source = source[0] if len(source) == 1 else tuple(source)
            object.__setattr__(self, "source", source)

    @classmethod
    def of(cls, source: object, **keywords: Any) -> PrepareRequest:
        """Make a request from the keywords of `prepare`: the fields above, and settings by name."""
        names = [item.name for item in fields(cls) if item.name not in ("source", "config")]
        given = assign_settings("prepare", keywords, names, {"config": PrepareConfig})
        return cls(source=source, **given)

    @property
    def settings_of_preparation(self) -> list[str]:
        """Names of the given settings that only a preparation can apply."""
        given, default = self.config.content(), PrepareConfig().content()
        names = [name for name in given | default if given.get(name) != default.get(name)]
        beside = {"query": self.config.query, "items": self.items, "source_dir": self.source_dir}
        return names + [name for name, value in beside.items() if value is not None]

    @property
    def is_prepared(self) -> bool:
        """True if the source is a dataset or its directory, not raw interactions."""
        if isinstance(self.source, str | Path):
            return is_dataset(Path(self.source))
        return isinstance(self.source, Dataset)

    def open_prepared(self) -> Dataset:
        """Return the source if it is a dataset, otherwise the dataset in its directory.

        Raises SettingError if settings of preparation are given, and the errors of `open_dataset`.
        """
        prepared = self.source if isinstance(self.source, Dataset) else open_dataset(self.source)
        if names := self.settings_of_preparation:
            raise SettingError(
                f"{prepared.path}: is prepared already, so {' and '.join(names)} cannot change it; "
                "give the raw file instead"
            )
        return prepared

    def check_names(self) -> None:
        """Raise InputError for a word that names neither a set nor a file or folder."""
        if not self.is_prepared:
            named_set(self.source, self.source_dir)

    @property
    def sources(self) -> list[str]:
        """The names of the sources for a message or a record, without passwords."""
        return [_name_source(one) for one in _as_sequence(self.source)]

    def record(self, manifest: Manifest) -> Document:
        """Return the request as JSON values, without passwords; ``manifest`` describes the dataset.

        The record names a frame by its kind, and a query, which may have a password, by its digest.
        The digests of the sources come from the manifest, and so does the ``preparation`` that
        ``like`` repeats, because the dataset may have been prepared before.
        """
        document: Document = to_document(replace(self, source=None, items=None))
        document["source"] = self.sources
        document["items"] = None if self.items is None else _name_source(self.items)
        if (query := self.config.query) is not None:
            document["config"]["query"] = f"sha256 {hashlib.sha256(query.encode()).hexdigest()}"
        document["preparation"] = to_document(settings_to_repeat(manifest.config))
        document["read"] = [
            {"holds": entry["holds"], "sha256": entry["sha256"]}
            | ({"read_as": MATRIX} if entry.get("read_as") == MATRIX else {})
            for entry in manifest.source
        ]
        return document


def take_data(source: Any, given: dict[str, Any]) -> PrepareRequest:
    """Take `OF_DATA` and ``preparation``, the config, out of ``given``; returns their request."""
    config = given.pop("preparation", PrepareConfig())
    own = {name: given.pop(name) for name in OF_DATA if name in given}
    return PrepareRequest(source=source, config=config, **own)


def _as_sequence(source: object) -> Sequence[object]:
    return source if isinstance(source, list | tuple) else [source]


def _name_source(source: object) -> str:
    if isinstance(source, str | Path):
        return without_secrets(str(source))
    return f"a {type(source).__module__.partition('.')[0]} {type(source).__name__}"

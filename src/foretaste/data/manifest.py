"""manifest.json: what a dataset directory holds and how it came about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretaste.errors import DatasetError

FORMAT_VERSION = 1
FILE_NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One Parquet file of the dataset."""

    num_rows: int
    sha256: str
    """Of the file's bytes."""
    content_digest: str
    """Of the values in row order, whatever engine wrote them."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a dataset except its rows."""

    protocol: str
    """The split, as printed beside every metric: ``leave-one-out``, ``leave-one-out (random)``,
    ``held-out-users``, ``temporal``, ``none``, or ``given`` where the source came split."""

    validation: str
    """``hold-out``, or ``none`` where training got the validation part or none was given."""

    seed: int
    """Seed of every choice made by hash."""

    num_users: int
    """All users: training users first, then those unseen in training."""

    num_train_users: int

    num_items: int
    """The catalogue: items of the training part."""

    num_all_items: int
    """The catalogue and, after it, items that only held-out interactions have."""

    num_interactions: int
    """Interactions of the training part."""

    counts: dict[str, int]
    """What was read, what each step dropped and what each part holds, in order."""

    config: dict[str, Any]
    """The settings that were asked for."""

    filters: dict[str, float]
    """The filters that were applied; empty where every row was kept."""

    columns: dict[str, str]
    """The column that was read as ``user_id``, ``item_id``, ``rating`` and ``time``."""

    id_types: dict[str, str]
    """``integer`` or ``text`` for ``user_id`` and ``item_id``."""

    source: list[dict[str, Any]]
    """Every file read: its path, its size in bytes and its sha256."""

    engine: str
    """What ran the steps, and its version."""

    created_by: str
    """The foretaste version that wrote the dataset."""

    parts: dict[str, Part]
    """Every file of the dataset by its name."""

    format_version: int = FORMAT_VERSION

    @property
    def digest(self) -> str:
        """Content digest of the whole: equal for equal data, whatever engine prepared it."""
        described = {
            "protocol": self.protocol,
            "seed": self.seed,
            "parts": {name: part.content_digest for name, part in self.parts.items()},
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def summary(self) -> list[tuple[str, str]]:
        """Lines for a person, as (label, value): protocol, sizes, and what was dropped."""
        validation = "" if self.validation == "hold-out" else ", no validation part"
        lines = [("protocol", f"{self.protocol}{validation}"), ("digest", self.digest[:12])]
        counts = {_in_words(name): f"{count:,}" for name, count in self.counts.items()}
        return lines + list(counts.items())

    def write(self, directory: Path) -> None:
        text = json.dumps(asdict(self) | {"digest": self.digest}, indent=2, ensure_ascii=False)
        (directory / FILE_NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest of a dataset directory; DatasetError where it is missing or not ours."""
        path = directory / FILE_NAME
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DatasetError(
                f"{directory}: is not a prepared dataset: it has no {FILE_NAME}. "
                "Make one with `foretaste prepare`"
            ) from None
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from None
        return cls._from_values(path, values)

    @classmethod
    def _from_values(cls, path: Path, values: Any) -> Manifest:
        version = values.get("format_version") if isinstance(values, dict) else None
        if version != FORMAT_VERSION:
            raise DatasetError(
                f"{path}: format version {version}, this foretaste reads {FORMAT_VERSION}; "
                "prepare the dataset again"
            )
        try:
            digest = values.pop("digest")
            parts = {name: Part(**part) for name, part in values.pop("parts").items()}
            manifest = cls(**values, parts=parts)
        except (KeyError, TypeError, AttributeError) as error:
            raise DatasetError(f"{path}: is damaged ({error}); prepare the dataset again") from None
        if manifest.digest != digest:
            raise DatasetError(
                f"{path}: its digest {digest[:12]} does not match what it lists; "
                "prepare the dataset again"
            )
        return manifest


def _in_words(name: str) -> str:
    return name.removeprefix("num_").replace("_", " ")


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The settings of a run's data or of a dataset, repeated by another preparation."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.documents import Document
from foretaste._util.files import read_document
from foretaste._util.formatting import did_you_mean, option_words
from foretaste._util.signed_json import check_signed
from foretaste.data.config import PREPARE_DEFAULTS, PrepareConfig, settings_to_repeat
from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.errors import RunError, SettingError


@dataclass(frozen=True, kw_only=True)
class Like:
    """What a preparation takes from the run or dataset in a directory."""

    directory: Path
    id_types: dict[str, str]
    """The types of both ids."""
    features: tuple[str, ...] | None
    """The columns of features; None without any."""
    settings: Document
    """The settings to repeat."""

    @classmethod
    def of(cls, directory: Path) -> Like:
        """Read the directory; SettingError if it has neither a run nor a dataset, RunError or
        DatasetError if the description of either was changed."""
        id_types = {}
        try:
            for kind in ("user", "item"):
                schema = pq.read_schema(directory / f"{kind}s.parquet")
                is_integer = pa.types.is_integer(schema.field(f"{kind}_id").type)
                id_types[f"{kind}_id_type"] = "integer" if is_integer else "text"
        except (OSError, ValueError, KeyError, pa.ArrowException):
            meant = did_you_mean(directory, holding="users.parquet")
            raise SettingError(f"like is {directory}, which is no run or dataset{meant}") from None
        features, settings = _read_description(directory)
        return cls(
            directory=directory, id_types=id_types, features=features or None, settings=settings
        )

    def config(
        self, given: PrepareConfig, *, has_items: bool = True, takes_features: bool = True
    ) -> PrepareConfig:
        """Return the settings ``given``, with the data's settings in place of defaults."""
        taken: Document = {**self.id_types, **self.settings}
        if not has_items:
            taken.pop("title_column", None)
        if takes_features and self.features:
            taken["features"] = self.features
        return replace(
            given,
            **{
                name: one
                for name, one in taken.items()
                if getattr(given, name) == PREPARE_DEFAULTS[name]
            },
        )

    def notes(self, given: PrepareConfig) -> dict[str, str]:
        """Return notes on the repeated settings, and on the given settings that replace others."""
        others = {
            name: getattr(given, name)
            for name, setting in self.settings.items()
            if getattr(given, name) not in (PREPARE_DEFAULTS[name], setting)
        }
        repeated = {name: one for name, one in self.settings.items() if name not in others}
        if not repeated and not others:
            return {}
        words = " ".join(option_words(repeated))
        note = f"{words or 'nothing else'} as {self.directory}"
        if others:
            replaced = {name: self.settings[name] for name in others}
            note += f"; {' '.join(option_words(others))} in place of "
            note += " ".join(option_words(replaced))
        return {"like": note}


def _read_description(directory: Path) -> tuple[tuple[str, ...], Document]:
    """Return the columns of features of a run or dataset, and the settings to repeat."""
    if (directory / FILE_NAME).is_file():
        manifest = Manifest.read(directory)
        return manifest.feature_columns, settings_to_repeat(manifest.config)
    path = directory / "config.json"
    try:
        check_signed(text := read_document(path))
        run = json.loads(text)
        settings = settings_to_repeat(run["request"]["data"]["preparation"])
        return tuple(run["dataset"].get("feature_columns", ())), settings
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    except KeyError as name:
        raise RunError(f"{path} has no {name}: another version wrote it; train again") from None

"""Everything a preparation reads, found, opened and checksummed before it begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretaste._util.formatting import shown
from foretaste.data.config import PrepareConfig
from foretaste.data.fixed_candidates import PART, open_candidates
from foretaste.data.given_split import as_given_split
from foretaste.data.item_columns import open_item_scan
from foretaste.data.manifest import FILE_NAME, FORMAT_VERSION, Manifest
from foretaste.data.progress import Progress
from foretaste.data.scans import Scan
from foretaste.data.sources import check_format_acts, open_scans
from foretaste.errors import DatasetError, SettingError

_LONGEST_NAME = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Raw:
    """The sources of one preparation."""

    scans: list[Scan]
    """Interactions; each scan's place is its part's position in ``parts``."""

    parts: tuple[str, ...]
    """The parts of a split that was made elsewhere, training first; none where there is none, and
    where protocol none trains on all of it."""

    candidates: list[Scan]
    """The candidates that came with the test part, if any."""

    item_scan: Scan | None
    """What describes items, if anything."""

    provenance: list[dict[str, Any]]
    """What each source holds, its name, size and checksum, and what text is read as."""

    name: str
    """What a dataset of it is called."""

    tell: Progress

    @classmethod
    def open(
        cls,
        source: Any,
        items: Any,
        config: PrepareConfig,
        tell: Progress,
        *,
        name: str | None = None,
    ) -> Raw:
        """Find and checksum whatever ``source`` and ``items`` name; InputError where they cannot
        be read. Without a ``name`` it is called after its first file."""
        split = as_given_split(source)
        format = config.file_format
        sources = {"interactions": source} if split is None else split.parts()
        is_split = split is not None and config.protocol != "none"
        opened = {
            part: [replace(scan, place=place * is_split) for scan in open_scans(named, format)]
            for place, (part, named) in enumerate(sources.items())
        }
        scans = [scan for part in opened.values() for scan in part]
        given = split.test_candidates if split is not None and is_split else None
        candidates = [] if given is None else open_candidates(given, format)
        check_format_acts(format, scans + candidates)
        _check_target_rule(config, candidates)
        _check_title(config, items)
        item_scan = None if items is None else open_item_scan(items, config.items_format)
        tell("checksum")
        opened |= {PART: candidates, "items": [] if item_scan is None else [item_scan]}
        return cls(
            scans=scans,
            parts=tuple(sources) if is_split else (),
            candidates=candidates,
            item_scan=item_scan,
            provenance=[
                {"holds": part} | scan.provenance() for part, scans in opened.items()
                for scan in scans
            ],
            name=name or Path(scans[0].name).name.split(".")[0],
            tell=tell,
        )  # fmt: skip

    def default_output(self, config: PrepareConfig, root: Path) -> Path:
        """``root/<name>-<digest>``: the same for the same content and settings, wherever it is."""
        digest = hashlib.sha256(_key(self.provenance, config.content()).encode()).hexdigest()
        # A name may have 255 bytes, and a temporary one is longer.
        name = self.name.encode()[:_LONGEST_NAME].decode(errors="ignore")
        return root / f"{name}-{digest[:12]}"

    def is_prepared_in(self, directory: Path, config: PrepareConfig) -> bool:
        """Whether a dataset there was made of the same content by the same settings."""
        if not (directory / FILE_NAME).is_file():
            return False
        with suppress(DatasetError):
            manifest = Manifest.read(directory)
            made = _key(manifest.source, manifest.config)
            return made == _key(self.provenance, config.content())
        return False

    def check_unchanged(self) -> None:
        """Raise InputError where a file was written to since it was opened."""
        described = [] if self.item_scan is None else [self.item_scan]
        for scan in (*self.scans, *self.candidates, *described):
            scan.check_unchanged()


def _key(source: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    """What decides a dataset, as text."""
    key = {
        "format_version": FORMAT_VERSION,
        "source": sorted(
            [entry.get(name, "") for name in ("holds", "sha256", "read_as", "folders")]
            for entry in source
        ),
        "config": dict(settings),
    }
    return json.dumps(key, sort_keys=True)


def _check_title(config: PrepareConfig, items: Any) -> None:
    if config.title_column is not None and items is None:
        raise SettingError(
            f"title_column is {shown(config.title_column)}, and no file describes the items; give "
            "it with --items (items=... in Python)"
        )


def _check_target_rule(config: PrepareConfig, candidates: list[Scan]) -> None:
    if config.target_in_candidates == "drop" and not candidates:
        raise SettingError(
            "target_in_candidates is drop, and no candidates came with the test part; give them "
            "with --test-candidates (GivenSplit(test_candidates=...) in Python) or leave it out"
        )

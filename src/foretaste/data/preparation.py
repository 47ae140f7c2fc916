"""From raw interactions to a prepared dataset directory."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste import __version__
from foretaste.data.columns import find_roles
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.directory import check_output, written_whole
from foretaste.data.engine import NAME as ENGINE_NAME
from foretaste.data.engine import Engine
from foretaste.data.item_columns import check_described, open_item_scan, read_item_columns
from foretaste.data.manifest import FILE_NAME, FORMAT_VERSION, Manifest, Part
from foretaste.data.plan import Plan, make_plan
from foretaste.data.reading import Kind, read_raw
from foretaste.data.sources import Scan, open_scans
from foretaste.data.splitting import (
    Progress,
    collapse_pairs,
    count_parts,
    filter_rows,
    number,
    split_pairs,
)
from foretaste.data.writing import write_parts
from foretaste.errors import DatasetError, InputError, SettingError

DATASETS = Path("datasets")


def prepare(
    source: Any,
    output: Path | str | None = None,
    config: PrepareConfig | None = None,
    *,
    items: Any = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Turn raw interactions into a dataset directory, and open it.

    ``source`` is a CSV, TSV or Parquet file, a pattern of them (``folder/*.parquet``), a sequence
    of either, a pandas DataFrame or a pyarrow Table; ``items`` a file or frame with the item id
    and further columns such as a title. ``output`` is ``datasets/<name>-<digest>`` unless given:
    the digest is that of the source and settings, so what is there already is opened as it is.
    ``progress`` is called with the name of each step as it begins.

    The directory appears complete or not at all. Same input, settings and seed give the same
    files, whatever the order of rows, number of threads or memory limit.

    Raises InputError for what is wrong with the source (file, line, example), SettingError for
    settings that do not fit it, DatasetError where ``output`` may not be written.
    """
    config = config or PrepareConfig()
    if output is not None:
        check_output(Path(output), overwrite)
    raw = _Raw.open(source, items, progress or _silent)
    if output is not None:
        return _prepare(raw, Path(output), config, overwrite)
    target = raw.default_output(config, DATASETS)
    return _prepare(raw, target, config, overwrite) if overwrite else _found(raw, target, config)


def open_or_prepare(
    source: Any,
    config: PrepareConfig | None = None,
    root: Path | str = DATASETS,
    *,
    items: Any = None,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset at ``source`` if it is a dataset directory; else ``source`` prepared.

    Raw interactions are prepared once, under ``root/<name>-<digest of source and settings>``, and
    found there the next time. Raises SettingError where settings are given for a dataset that is
    prepared already, and whatever ``prepare`` and ``open_dataset`` raise.
    """
    asked = config or PrepareConfig()
    if isinstance(source, str | Path) and (Path(source) / FILE_NAME).is_file():
        if asked.content() != PrepareConfig().content() or items is not None:
            raise SettingError(
                f"{source}: is prepared already, and neither settings of preparation nor items can "
                "change it; give the raw file instead"
            )
        return open_dataset(source)
    raw = _Raw.open(source, items, progress or _silent)
    return _found(raw, raw.default_output(asked, Path(root)), asked)


def _found(raw: _Raw, output: Path, config: PrepareConfig) -> Dataset:
    """The dataset that is at its default ``output`` already, or is prepared there now."""
    if not output.exists():
        try:
            return _prepare(raw, output, config, overwrite=False)
        except DatasetError:
            # Another process may have prepared the same meanwhile.
            if not (output / FILE_NAME).is_file():
                raise
    return open_dataset(output)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Raw:
    """Everything a preparation reads, found and checksummed."""

    scans: list[Scan]
    item_scan: Scan | None
    provenance: list[dict[str, Any]]
    tell: Progress

    @classmethod
    def open(cls, source: Any, items: Any, tell: Progress) -> _Raw:
        scans = open_scans(source)
        item_scan = None if items is None else open_item_scan(items)
        tell("checksum")
        provenance = [{"holds": "interactions"} | scan.provenance() for scan in scans]
        if item_scan is not None:
            provenance.append({"holds": "items"} | item_scan.provenance())
        return cls(scans=scans, item_scan=item_scan, provenance=provenance, tell=tell)

    def default_output(self, config: PrepareConfig, root: Path) -> Path:
        """``root/<name>-<digest>``: the same for the same content and settings, wherever it is."""
        key = {
            "format_version": FORMAT_VERSION,
            "source": sorted((entry["holds"], entry["sha256"]) for entry in self.provenance),
            "config": config.content(),
        }
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        name = Path(self.scans[0].name).name.split(".")[0]
        return root / f"{name}-{digest[:12]}"


def _prepare(raw: _Raw, output: Path, config: PrepareConfig, overwrite: bool) -> Dataset:
    plan = _plan(raw.scans, config)
    with written_whole(output, overwrite=overwrite) as directory:
        with Engine(directory / "scratch", config.memory_limit, config.threads) as engine:
            manifest = _run_steps(engine, raw, directory, plan, config)
        manifest.write(directory)
    return Dataset(output, manifest)


def _run_steps(
    engine: Engine, raw: _Raw, directory: Path, plan: Plan, config: PrepareConfig
) -> Manifest:
    counts: dict[str, int] = {}
    raw.tell("read")
    kinds = read_raw(engine, raw.scans, plan.columns)
    item_columns = read_item_columns(engine, raw.item_scan, config.item_column)
    raw.tell("filter")
    kept = filter_rows(engine, plan, counts)
    raw.tell("collapse repeats")
    collapse_pairs(engine, kept, counts)
    raw.tell("split")
    held_parts = split_pairs(engine, plan, config, counts)
    raw.tell("number")
    number(engine)
    check_described(engine, raw.item_scan)
    count_parts(engine, held_parts, counts)
    raw.tell("write")
    parts = write_parts(engine, directory, held_parts, item_columns)
    return _manifest(raw, plan, config, counts, kinds, parts)


def _manifest(
    raw: _Raw,
    plan: Plan,
    config: PrepareConfig,
    counts: dict[str, int],
    kinds: dict[str, Kind],
    parts: dict[str, Part],
) -> Manifest:
    return Manifest(
        protocol=plan.label,
        validation=config.validation,
        seed=config.seed,
        num_users=counts["num_users"],
        num_train_users=counts["num_train_users"],
        num_items=counts["num_train_items"],
        num_all_items=counts["num_items"],
        num_interactions=counts["num_train_interactions"],
        counts=counts,
        config=config.content(),
        filters=plan.filters,
        columns=plan.columns,
        id_types={role: kinds[role] for role in ("user_id", "item_id")},
        source=raw.provenance,
        engine=ENGINE_NAME,
        created_by=f"foretaste {__version__}",
        parts=parts,
    )


def _plan(scans: list[Scan], config: PrepareConfig) -> Plan:
    """The plan for the columns of the first file, which every other file must have too."""
    first = scans[0]
    plan = make_plan(config, find_roles(list(first.columns), config, first.name))
    for scan in scans[1:]:
        missing = [name for name in plan.columns.values() if name not in scan.columns]
        if missing:
            raise InputError(
                f"{scan.name}: has no column {missing[0]!r}, which {first.name} has; "
                f"its columns are {', '.join(map(repr, scan.columns))}"
            )
    return plan


def _silent(step: str) -> None:
    """Progress that nobody watches."""

"""From raw interactions to a prepared dataset directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from foretaste.data import manifest as manifests
from foretaste.data.columns import find_roles
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.directory import check_output, written_whole
from foretaste.data.engine import NAME as ENGINE_NAME
from foretaste.data.engine import Engine
from foretaste.data.item_columns import read_item_columns
from foretaste.data.manifest import Manifest, Part
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
from foretaste.errors import InputError, SettingError

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
    and further columns such as a title. ``output`` is ``datasets/<name>-<digest>`` unless given.
    ``progress`` is called with the name of each step as it begins.

    The directory appears complete or not at all. Same input, settings and seed give the same
    files, whatever the order of rows, number of threads or memory limit.

    Raises InputError for what is wrong with the source (file, line, example), SettingError for
    settings that do not fit it, DatasetError where ``output`` may not be written.
    """
    config = config or PrepareConfig()
    tell = progress or _silent
    if output is not None:
        check_output(Path(output), overwrite)
    scans = open_scans(source)
    tell("checksum")
    sources = [scan.provenance() for scan in scans]
    target = _default_output(scans, sources, config, items, DATASETS) if output is None else output
    plan = _plan(scans, config)
    with written_whole(Path(target), overwrite=overwrite) as directory:
        manifest = _prepare(scans, items, sources, directory, plan, config, tell)
        manifest.write(directory)
    return Dataset(Path(target), manifest)


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
    if isinstance(source, str | Path) and (Path(source) / manifests.FILE_NAME).is_file():
        if asked.content() != PrepareConfig().content():
            raise SettingError(
                f"{source}: is prepared already, and settings of preparation cannot change it; "
                "give the raw file instead"
            )
        return open_dataset(source)
    scans = open_scans(source)
    sources = [scan.provenance() for scan in scans]
    output = _default_output(scans, sources, asked, items, Path(root))
    if output.exists():
        return open_dataset(output)
    return prepare(source, output, asked, items=items, progress=progress)


def _prepare(
    scans: list[Scan],
    items: Any,
    sources: list[dict[str, Any]],
    directory: Path,
    plan: Plan,
    config: PrepareConfig,
    tell: Progress,
) -> Manifest:
    """Run every step in ``directory``; what the manifest has to say."""
    counts: dict[str, int] = {}
    with Engine(directory / "scratch", config.memory_limit, config.threads) as engine:
        tell("read")
        for scan in scans:
            if scan.frame is not None:
                engine.register(scan.relation, scan.frame)
        kinds = read_raw(engine, scans, plan.columns)
        item_columns = [] if items is None else read_item_columns(engine, items, config.item_column)
        tell("filter")
        kept = filter_rows(engine, plan, counts)
        tell("collapse repeats")
        collapse_pairs(engine, kept, counts)
        tell("split")
        held_parts = split_pairs(engine, plan, config)
        number(engine)
        count_parts(engine, held_parts, counts)
        tell("write")
        parts = write_parts(engine, directory, held_parts, item_columns)
    return _manifest(plan, config, counts, kinds, sources, parts)

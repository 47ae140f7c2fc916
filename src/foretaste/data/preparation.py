"""From raw interactions to a prepared dataset directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from foretaste import __version__
from foretaste._util.atomic import bring_back
from foretaste._util.keywords import routed
from foretaste._util.settings import AnyPath, checked, given_or_default
from foretaste.data.casts import Kind
from foretaste.data.columns import check_columns, describe_unused, find_roles, refuse_times
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.directory import check_output, why_not_written, written_whole
from foretaste.data.engine import NAME as ENGINE_NAME
from foretaste.data.engine import Engine
from foretaste.data.fixed_candidates import judge_contradicted, number_candidates, read_candidates
from foretaste.data.folders import describe_folders
from foretaste.data.item_columns import check_described, describe_titles, read_item_columns
from foretaste.data.manifest import FILE_NAME, Manifest, Part
from foretaste.data.named_files import find_files
from foretaste.data.named_sets import named_set
from foretaste.data.odd_ids import describe_odd_ids
from foretaste.data.plan import Plan, make_plan
from foretaste.data.progress import Progress, telling
from foretaste.data.raw import Raw
from foretaste.data.reading import read_raw
from foretaste.data.splitting import (
    collapse_pairs,
    count_parts,
    describe_limits,
    filter_rows,
    number,
    split_pairs,
)
from foretaste.data.writing import write_parts
from foretaste.errors import DatasetError, SettingError

DATASETS = Path("datasets")


def prepare(
    source: Any,
    output: Path | str | None = None,
    config: PrepareConfig | None = None,
    *,
    items: Any = None,
    source_dir: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Dataset:
    """Turn raw interactions into a dataset directory, and open it.

    ``source`` is a file of delimited text or JSON lines (.gz and .zst too) or Parquet, a folder or
    a pattern of them (``folder/*.parquet``), a sequence of these, a pandas or Polars DataFrame, a
    pyarrow Table, a SciPy sparse matrix (row numbers are user ids, column numbers item ids, values
    ratings), or a GivenSplit of any of these. Columns of several files are matched by name.
    ``items`` is a file or frame with the item id and further columns such as a title. ``output`` is
    ``datasets/<name>-<digest>`` unless given: the digest is that of the source and settings. What
    is there already, of the same source and settings, is opened as it is. ``progress`` is called
    with the name of each step as it begins, and with how far a download is. Settings may be given
    by name too, ``prepare("plays.csv", user_column="listener")``, and go before what ``config``
    says.

    ``ml-100k``, ``ml-1m``, ``ml-20m``, ``ml-25m`` and ``ml-32m`` are sources too: MovieLens is
    downloaded once, checked and unpacked, titles come with it, and ``filters`` are the reference's.
    With ``source_dir`` the files, or the archive, are taken from there instead.

    The directory appears complete or not at all. Same input, settings and seed give the same
    files, whatever the order of rows, number of threads or memory limit.

    Raises InputError for what is wrong with the source (file, line, example), SettingError for
    settings that do not fit it, DatasetError where ``output`` may not be written.
    """
    (config,) = routed(prepare, {"config": (PrepareConfig, config)}, settings)
    asked: Path | None = checked("output", output, AnyPath | None)
    overwrite = checked("overwrite", overwrite, bool)
    if asked is not None:
        # What is prepared there already may be the same.
        check_output(asked, overwrite=True)
    with telling(progress) as tell:
        raw, config = _open(source, items, config, source_dir, tell)
        target = asked or raw.default_output(config, DATASETS)
        if not overwrite and (asked is None or raw.is_prepared_in(target, config)):
            return _found(raw, target, config)
        return _prepare(raw, target, config, overwrite)


def open_or_prepare(
    source: Any,
    config: PrepareConfig | None = None,
    root: Path | str = DATASETS,
    *,
    items: Any = None,
    source_dir: Path | str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset ``source`` is or whose directory it names; else ``source`` prepared.

    Raw interactions are prepared once, under ``root/<name>-<digest of source and settings>``, and
    found there the next time. Raises SettingError where settings are given for a dataset that is
    prepared already, and whatever ``prepare`` and ``open_dataset`` raise.
    """
    prepared = _prepared_already(source)
    if prepared is not None:
        asked = given_or_default("config", config, PrepareConfig).content()
        are_files_given = items is not None or source_dir is not None
        if asked != PrepareConfig().content() or are_files_given:
            raise SettingError(
                f"{prepared.path}: is prepared already, and neither settings of preparation nor "
                "items can change it; give the raw file instead"
            )
        return prepared
    root = checked("root", root, Path)
    with telling(progress) as tell:
        raw, config = _open(source, items, config, source_dir, tell)
        return _found(raw, raw.default_output(config, root), config)


def _prepared_already(source: Any) -> Dataset | None:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str | Path):
        bring_back(Path(source))
        # Unlike Path's, this raises nothing, however odd or long a name is.
        if os.path.isfile(Path(source) / FILE_NAME):  # noqa: PTH113
            return open_dataset(source)
    return None


def _open(
    source: Any,
    items: Any,
    config: PrepareConfig | None,
    source_dir: Path | str | None,
    tell: Progress,
) -> tuple[Raw, PrepareConfig]:
    """Everything there is to read, and the settings to prepare it with."""
    config = given_or_default("config", config, PrepareConfig)
    source_dir = checked("source_dir", source_dir, Path | None)
    named = named_set(source, source_dir)
    if named is None:
        return Raw.open(source, items, config, tell), config
    config = named.settings(config, with_items=items is None)
    source, own_items = find_files(named, source_dir, tell)
    items = own_items if items is None else items
    return Raw.open(source, items, config, tell, name=named.name), config


def _found(raw: Raw, output: Path, config: PrepareConfig) -> Dataset:
    """The dataset that is at its default ``output`` already, or is prepared there now."""
    if not output.exists():
        try:
            return _prepare(raw, output, config, overwrite=False)
        except DatasetError:
            # Another process may have prepared the same meanwhile.
            if not (output / FILE_NAME).is_file():
                raise
    return open_dataset(output)


def _prepare(raw: Raw, output: Path, config: PrepareConfig, overwrite: bool) -> Dataset:
    plan = _plan(raw, config)
    try:
        with written_whole(output, overwrite=overwrite) as directory:
            with Engine(directory / "scratch", config.memory_limit, config.threads) as engine:
                manifest = _run_steps(engine, raw, directory, plan, config)
            manifest.write(directory)
    except OSError as error:
        raise DatasetError(f"{output}: {why_not_written(error, 'write elsewhere')}") from None
    return Dataset(output, manifest)


def _run_steps(
    engine: Engine, raw: Raw, directory: Path, plan: Plan, config: PrepareConfig
) -> Manifest:
    counts: dict[str, int] = {}
    raw.tell("read")
    kinds = read_raw(engine, raw.scans, plan.columns, config.time_format)
    read = (name for scan in raw.scans for name in scan.columns)
    notes = describe_unused(read, plan.columns.values()) | describe_odd_ids(engine, kinds)
    notes |= describe_folders(raw.scans, plan.columns.values())
    item_columns = read_item_columns(engine, raw.item_scan, config)
    if raw.candidates:
        read_candidates(engine, raw.candidates, plan, config)
    raw.check_unchanged()
    raw.tell("filter")
    kept = filter_rows(engine, plan, counts)
    if raw.candidates:
        kept = judge_contradicted(engine, kept, plan, config, counts)
    raw.tell("collapse repeats")
    collapse_pairs(engine, kept, plan, counts)
    raw.tell("split")
    held_parts = split_pairs(engine, plan, config, counts)
    raw.tell("number")
    number(engine)
    check_described(engine, raw.item_scan)
    notes = describe_titles(engine, raw.item_scan, config) | notes
    count_parts(engine, plan, held_parts, counts)
    notes |= describe_limits(held_parts, counts)
    if raw.candidates:
        number_candidates(engine, raw.candidates, plan, counts)
    raw.tell("write")
    parts = write_parts(engine, directory, held_parts, kinds, item_columns, bool(raw.candidates))
    return _manifest(raw, plan, config, counts, kinds, parts, notes)


def _manifest(
    raw: Raw,
    plan: Plan,
    config: PrepareConfig,
    counts: dict[str, int],
    kinds: dict[str, Kind],
    parts: dict[str, Part],
    notes: dict[str, str],
) -> Manifest:
    return Manifest(
        protocol=plan.label,
        validation=_validation(plan, config),
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
        notes=notes,
    )


def _validation(plan: Plan, config: PrepareConfig) -> str:
    if not plan.parts:
        return config.validation
    return "hold-out" if plan.has_validation else "none"


def _plan(raw: Raw, config: PrepareConfig) -> Plan:
    """The plan for the columns of the first file, which every other file must have too."""
    first = raw.scans[0]
    roles = find_roles(list(first.columns), config, first.name, first.header)
    plan = make_plan(config, roles, raw.parts)
    ignores_times = bool(raw.parts) or config.protocol not in ("auto", "leave-one-out")
    for scan in raw.scans[1:]:
        check_columns(list(scan.columns), scan.name, plan.columns.values(), first.name)
        if roles.time is None and not ignores_times:
            refuse_times(list(scan.columns), scan.name, first.name)
    return plan

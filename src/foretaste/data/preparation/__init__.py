"""Preparation of a dataset directory from raw interactions, step by step in SQL.

The engine is imported when a preparation begins, so a prepared dataset opens without DuckDB.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Unpack

from foretaste._util.files import atomic_directory, real_path, unwritable_message
from foretaste._util.settings import given_or_default
from foretaste.data.config import InputConfig, PairsConfig, PrepareConfig, Progress
from foretaste.data.dataset import Dataset, open_dataset
from foretaste.data.like import Like
from foretaste.data.manifest import FILE_NAME, UNSEEN, check_output, holds_dataset
from foretaste.data.preparation.columns import (
    ItemDescriptions,
    check_columns,
    check_time_format,
    find_columns,
)
from foretaste.data.preparation.engine import Engine
from foretaste.data.preparation.features import FEATURE, FeaturesError
from foretaste.data.preparation.inputs import Inputs
from foretaste.data.preparation.pipeline import Pipeline
from foretaste.data.preparation.reading import read_raw
from foretaste.data.request import PrepareRequest
from foretaste.data.sources import check_format_acts, open_items, open_sources
from foretaste.data.spellings import PAIR, find_spelling
from foretaste.errors import DatasetError, DataWarning, InputError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

    from foretaste.data.preparation.spark_session import Spark
    from foretaste.keywords import PrepareKeywords

# An option of the command line, with the Python spelling that may follow it.
_OPTION = re.compile(r"--([a-z][a-z-]*)(?: \([a-z_]+=[^)]* in Python\))?")
# An item that appears twice takes its last place.
_HISTORIES = """
SELECT user_id, list(item_id ORDER BY last_time, item_id)
FROM (SELECT user_id, item_id, max(time) AS last_time FROM raw GROUP BY user_id, item_id)
GROUP BY user_id
"""


def prepare(
    source: object,
    output: Path | str | None = None,
    config: PrepareConfig | None = None,
    *,
    items: object = None,
    source_dir: Path | str | None = None,
    like: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **settings: Unpack[PrepareKeywords],
) -> Dataset:
    """Turn raw interactions into a dataset directory, and open it.

    ``source`` is a file of delimited text or JSON lines (.gz and .zst too) or Parquet, a folder or
    a pattern of them (``folder/*.parquet``), the URL of a database (``sqlite:///events.db``,
    ``postgresql://user@host/database``; see ``query``), a sequence of these, a pandas or Polars
    DataFrame, a pyarrow Table, a SciPy sparse matrix (row numbers are user ids, column numbers item
    ids, values ratings, or weights by ``weight_column="rating"``), or a GivenSplit of any of these.
    Columns of several files are matched by name. ``items`` is a file or frame with the item id and
    further columns such as a title. The default of ``output`` is ``datasets/<name>-<digest>``, with
    the digest of source and settings. A dataset of the same source and settings is opened if it
    exists. ``progress`` gets the name of each step when the step begins, and the progress of a
    download. Settings may be given by name, ``prepare("plays.csv", user_column="listener")``; they
    override ``config``.

    ``ml-100k``, ``ml-1m``, ``ml-20m``, ``ml-25m`` and ``ml-32m`` are sources too. MovieLens is
    downloaded once, checked and unpacked; titles come with it, and ``filters`` are the reference's.
    With ``source_dir`` the files, or the archive, come from that folder instead.

    ``like`` is a run or dataset whose settings of preparation are repeated if no others are given:
    columns, filters, weights, events, half-life, features, and the format of text. Its id types,
    integer or text, become ``user_id_type`` and ``item_id_type``; otherwise one new id with letters
    would make the whole column text. Protocol ``unseen`` holds out pairs that this run's training
    lacked.

    The directory appears complete or not at all. The same input, settings and seed give the same
    files, for any order of rows, number of threads and memory limit.

    Notes on the data, such as ids kept as text, are warnings of the category DataWarning.
    ``print(dataset)`` shows them too, with all sizes and the numbers of dropped rows.

    Raises InputError for a fault of the source (file, line, example), SettingError for settings
    that do not fit the source, DatasetError if ``output`` may not be written or the dataset
    ``like`` was changed, RunError if the run ``like`` was changed.
    """
    request = PrepareRequest.of(
        source,
        output=output,
        config=config,
        items=items,
        source_dir=source_dir,
        like=like,
        overwrite=overwrite,
        **settings,
    )
    return prepare_dataset(request, progress)


def prepare_dataset(request: PrepareRequest, progress: Progress | None = None) -> Dataset:
    """Prepare the dataset of a request, or open it if it exists already.

    Raises the errors of `prepare`.
    """
    if request.output is not None:
        holds_dataset(request.output)  # raises now if nobody may write there
    try:
        return _dataset_of(request, progress)
    except FeaturesError as error:
        if request.like is None or request.config.features:
            raise
        taken = " ".join(Like.of(request.like).features or ())
        raise FeaturesError(f"{error} (--like {request.like} has features {taken})") from None


def open_or_prepare(request: PrepareRequest, progress: Progress | None = None) -> Dataset:
    """Return the dataset of a request, whose source may also be a Dataset or its directory.

    Raw interactions are prepared once, under ``root/<name>-<digest of source and settings>``, and
    opened there the next time. Raises SettingError if settings of preparation are given for a
    prepared dataset, and the errors of ``prepare`` and ``open_dataset``.
    """
    if request.is_prepared:
        return request.open_prepared()
    return prepare_dataset(request, progress)


def _dataset_of(request: PrepareRequest, progress: Progress | None) -> Dataset:
    """Return the dataset at the request's ``output`` or digest: opened, or prepared first."""
    report = progress or (lambda step: None)
    with _spark(request.config) as spark:
        inputs = Inputs.open(request, report, None if spark is None else spark.open_named)
        target = request.output or inputs.default_output(request.root)
        if not request.overwrite and (request.output is None or inputs.is_prepared_in(target)):
            dataset = _open_or_prepare(inputs, target, report, spark)
        else:
            dataset = _prepare(inputs, target, report, spark, overwrite=request.overwrite)
    issue_warnings(dataset)
    return dataset


def issue_warnings(dataset: Dataset) -> None:
    """Issue a dataset's notes and lost rows as warnings, at the line that called foretaste."""
    package, frame, level = str(Path(__file__).parents[2]), sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    manifest = dataset.manifest
    rows = {"rows": manifest.rows()} if manifest.has_dropped_rows else {}
    for subject, note in (rows | manifest.notes).items():
        # These notes only describe; nothing is odd.
        is_description = subject in ("titles", "times", "new items", UNSEEN, "like")
        if not is_description and not subject.startswith(FEATURE):
            note = _OPTION.sub(lambda found: found[1].replace("-", "_"), note)
            warnings.warn(f"{dataset.path.name}: {subject}: {note}", DataWarning, level)


def read_histories(
    source: object, config: PairsConfig | None = None
) -> dict[int | str, list[int | str]]:
    """Return the items of each user, oldest first and without repeats, by sorted user.

    ``source`` is any source of `prepare`: files of delimited text or Parquet, folders and patterns
    of them, frames, sparse matrices. Only the columns of users, items and times are read. Times
    order the items if one column has times; otherwise the rows do. Ids are integers
    if all ids of a column are written as integers, otherwise text. Raises InputError with file,
    line and example.
    """
    config = given_or_default("config", config, PairsConfig)
    sources = open_sources(source, config.file_format)
    check_format_acts(config.file_format, sources, None)
    if config.time_column is None:
        columns = find_columns(sources[0], config)
        with suppress(InputError):  # several columns look like times, so the rows decide
            if time := find_spelling([*sources[0].columns], "time", sources[0].name):
                columns["time"] = time
    else:
        clock = ("clock",) if isinstance(config.time_column, tuple) else ()
        columns = find_columns(sources[0], config, (*PAIR, "time", *clock))
    check_time_format(config, columns)
    check_columns(sources, columns.values())
    sources = [opened.reading(columns.values()) for opened in sources]

    from foretaste.data.preparation.duckdb_engine import DuckDBEngine

    with TemporaryDirectory() as directory, DuckDBEngine(Path(directory) / "scratch") as engine:
        read_raw(engine, sources, columns, time_format=config.time_format)
        for opened in sources:
            opened.check_unchanged()
        return dict(sorted(engine.run(_HISTORIES)))


def read_items(source: object, config: PairsConfig | None = None) -> pa.Table:
    """Return the columns of items as a table of text: one row per item, ``described_id`` first.

    ``source`` is the same as ``items`` of `prepare`, with the same rules for its columns. Raises
    InputError if the source cannot be read or changes during the read.
    """
    config = given_or_default("config", config, PairsConfig)
    described = open_items(source, config.items_format)
    descriptions = ItemDescriptions(described, InputConfig(item_column=config.item_column))

    from pyarrow import parquet

    from foretaste.data.preparation.duckdb_engine import DuckDBEngine

    with TemporaryDirectory() as directory, DuckDBEngine(Path(directory) / "scratch") as engine:
        descriptions.read(engine)
        described.check_unchanged()
        path = Path(directory) / "items.parquet"
        engine.write("SELECT * FROM described WHERE described_id IS NOT NULL", path)
        with parquet.ParquetFile(real_path(path)) as file:
            return file.read()


def _open_or_prepare(
    inputs: Inputs, output: Path, progress: Progress, spark: Spark | None
) -> Dataset:
    """Return the dataset at ``output``: opened if it exists, otherwise prepared."""
    if not output.exists():
        try:
            return _prepare(inputs, output, progress, spark, overwrite=False)
        except DatasetError:
            # Another process may have prepared the same dataset first; then it is opened.
            if not (output / FILE_NAME).is_file():
                raise
    return open_dataset(output)


def _prepare(
    inputs: Inputs, output: Path, progress: Progress, spark: Spark | None, *, overwrite: bool
) -> Dataset:
    config = inputs.config
    try:
        check_output(output, overwrite)
        with atomic_directory(output, replace=overwrite) as directory:
            with _engine(spark, config, directory / "scratch") as engine:
                manifest = Pipeline(engine, inputs).run(directory, progress)
            manifest.write(directory)
            # The check runs again, because a preparation takes minutes. The first of two writers
            # wins until the renaming, which replaces nothing without ``overwrite``.
            check_output(output, overwrite)
    except OSError as error:
        raise DatasetError(f"{output}: {unwritable_message(error, 'write elsewhere')}") from None
    return Dataset(output, manifest)


@contextmanager
def _spark(config: PrepareConfig) -> Iterator[Spark | None]:
    """Yield Spark if the engine is spark. Spark starts on first use and stops at the end."""
    if config.engine != "spark":
        yield None
        return
    if find_spec("pyspark") is None:
        raise MissingExtraError(
            'engine spark needs PySpark, which is missing: pip install "pyspark>=4.3,<5"'
        )
    from foretaste.data.preparation.spark_session import Spark

    with Spark(config) as spark:
        yield spark


def _engine(spark: Spark | None, config: PrepareConfig, scratch: Path) -> Engine:
    """Return the engine of the settings, without an import of the other engine."""
    if spark is None:
        from foretaste.data.preparation.duckdb_engine import DuckDBEngine

        return DuckDBEngine(scratch, config.memory_limit, config.threads)
    from foretaste.data.preparation.spark_engine import SparkEngine

    return SparkEngine(spark, scratch)

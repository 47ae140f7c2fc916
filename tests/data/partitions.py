"""A prepared dataset, with its training part in several files and in small row groups."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from foretaste._util.files import file_sha256
from foretaste.data import Dataset, open_dataset
from foretaste.data.manifest import TRAIN_FILE, Part
from foretaste.data.preparation.writing import content_digest


def in_partitions(
    dataset: Dataset, output: Path, users: Sequence[int], row_group_size: int = 3
) -> Dataset:
    """A copy whose training files begin with these users; without users, one file has small row
    groups."""
    shutil.copytree(dataset.path, output)
    table = pq.read_table(output / TRAIN_FILE)
    rows = [*dataset.train.offsets[list(users)], table.num_rows]
    (output / TRAIN_FILE).unlink()
    names = [f"train/part-{number:05d}.parquet" for number in range(len(users))]
    for name, start, stop in zip(names, rows, rows[1:], strict=False):
        (output / name).parent.mkdir(exist_ok=True)
        pq.write_table(table[start:stop], output / name, row_group_size=row_group_size)
    if not users:
        pq.write_table(table, output / TRAIN_FILE, row_group_size=row_group_size)
    parts = {name: part for name, part in dataset.manifest.parts.items() if name != TRAIN_FILE}
    for name in names or [TRAIN_FILE]:
        parts[name] = Part(
            num_rows=pq.read_metadata(output / name).num_rows,
            sha256=file_sha256(output / name),
            content_digest=content_digest(output / name),
        )
    digest = content_digest(*(output / name for name in names)) if names else ""
    replace(dataset.manifest, parts=parts, train_digest=digest).write(output)
    return open_dataset(output)


@contextmanager
def few_open_files() -> Iterator[None]:
    """Limit the process to twenty more open files; the test is skipped if the number of open files
    is unknown."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files are listed on Linux only")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 20, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

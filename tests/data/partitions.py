"""A prepared dataset, with its training part in several files and in small row groups."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from foretaste._util.files import file_sha256
from foretaste.data import Dataset, open_dataset
from foretaste.data.content import content_digest
from foretaste.data.manifest import TRAIN_FILE, Part


def in_partitions(
    dataset: Dataset, output: Path, users: Sequence[int], row_group_size: int = 3
) -> Dataset:
    """A copy of which each training file begins with one of these users; with none of them, the
    one file has small row groups."""
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
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(pq.ParquetFile(output / name))
            for name in names or [TRAIN_FILE]
        }
        for name, file in files.items():
            parts[name] = Part(
                num_rows=file.metadata.num_rows,
                sha256=file_sha256(output / name),
                content_digest=content_digest(file),
            )
        digest = content_digest(*files.values()) if names else ""
    replace(dataset.manifest, parts=parts, train_digest=digest).write(output)
    return open_dataset(output)

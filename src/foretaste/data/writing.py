"""The files of a dataset and their digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from foretaste._util.files import file_sha256
from foretaste.data import steps
from foretaste.data.casts import Kind
from foretaste.data.csv_files import quoted
from foretaste.data.directory import real_path
from foretaste.data.engine import Engine
from foretaste.data.manifest import Part
from foretaste.data.part_files import content_digest, is_in_order
from foretaste.errors import DatasetError, InputError


def write_parts(
    engine: Engine,
    directory: Path,
    held_parts: list[str],
    kinds: Mapping[str, Kind],
    item_columns: list[str],
    with_candidates: bool,
) -> dict[str, Part]:
    """Write every Parquet file; what was written, by file name."""
    queries = {"train": steps.PAIRS_FILE.format(rows="train")}
    for part in held_parts:
        rows = f"(SELECT user_code, item_code FROM held WHERE part = '{part}')"
        queries[part] = steps.PAIRS_FILE.format(rows=rows)
    if with_candidates:
        queries["test_candidates"] = steps.PAIRS_FILE.format(rows="candidates")
    # However few bits were enough for them in between.
    ids = {
        role: f"CAST({role} AS BIGINT)" if kind == "integer" else role
        for role, kind in kinds.items()
    }
    queries["users"] = steps.USERS_FILE.format(user_id=ids["user_id"])
    queries["items"] = steps.ITEMS_FILE.format(
        item_id=ids["item_id"],
        item_columns="".join(f", {name}" for name in item_columns),
        described=steps.DESCRIBED if item_columns else "",
    )
    return {
        f"{name}.parquet": _write(engine, sql, directory / f"{name}.parquet")
        for name, sql in queries.items()
    }


def _write(engine: Engine, sql: str, path: Path) -> Part:
    try:
        engine.run(f"COPY ({sql}) TO {quoted(real_path(path))} (FORMAT parquet)")
    except InputError as error:
        raise DatasetError(f"{path}: cannot be written: {error}") from None
    with pq.ParquetFile(real_path(path)) as file:
        # The engine is trusted to sort, and was caught not to; a reader would refuse the file.
        assert is_in_order(file), f"{path.name} came out unsorted"
        return Part(
            num_rows=file.metadata.num_rows,
            sha256=file_sha256(path),
            content_digest=content_digest(file),
        )

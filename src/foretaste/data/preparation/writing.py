"""The directory of a dataset: where it may be written, its files and their digests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from foretaste._util.atomic import remove_leftovers
from foretaste._util.files import file_sha256, is_name_text, real_path
from foretaste.data.manifest import FILE_NAME, Part
from foretaste.data.part_files import content_digest, is_in_order
from foretaste.data.preparation import steps
from foretaste.data.preparation.casts import Kind
from foretaste.data.sources.source import quoted
from foretaste.errors import DatasetError, InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_ITEMS = "items.parquet"
_MARK = b'"created_by": "foretaste '
_MARK_WITHIN_BYTES = 1 << 24


def check_output(output: Path, overwrite: bool) -> None:
    """Raise DatasetError where ``output`` may not be written.

    An empty directory may be filled; a prepared dataset is replaced only with ``overwrite``;
    anything else is never replaced. What a killed preparation of it left is put right first.
    """
    if not is_name_text(output):
        raise DatasetError(f"{output}: its name is not UTF-8 text; name another")
    remove_leftovers(output)
    try:
        is_new = not output.exists() and not output.is_symlink()
    except OSError as error:
        raise DatasetError(f"{output}: cannot be written: {error.strerror}") from None
    if is_new:
        return
    if not output.is_dir():
        raise DatasetError(f"{output}: is there already and is not a directory; name another")
    if not any(output.iterdir()):
        return
    if not _is_dataset(output):
        raise DatasetError(
            f"{output}: is a directory with other files in it, which is never replaced; "
            "name another"
        )
    if not overwrite:
        raise DatasetError(
            f"{output}: holds a prepared dataset; replace it with --overwrite "
            "(overwrite=True in Python) or name another"
        )


def _is_dataset(path: Path) -> bool:
    """Whether a directory was prepared here, even one that was damaged since: other programs have
    files called manifest.json too."""
    with suppress(OSError), (path / FILE_NAME).open("rb") as file:
        return (path / _ITEMS).is_file() or _MARK in file.read(_MARK_WITHIN_BYTES)
    return False


def write_parts(
    engine: Engine,
    directory: Path,
    held_parts: list[str],
    kinds: Mapping[str, Kind],
    item_columns: list[str],
    has_candidates: bool,
) -> dict[str, Part]:
    """Write every Parquet file; its description, by file name."""
    queries = {"train": steps.PAIRS_FILE.format(rows="train")}
    for part in held_parts:
        rows = f"(SELECT user_code, item_code FROM held WHERE part = '{part}')"
        queries[part] = steps.PAIRS_FILE.format(rows=rows)
    if has_candidates:
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
    parts = {}
    for name, query in queries.items():
        path = directory / f"{name}.parquet"
        try:
            engine.run(f"COPY ({query}) TO {quoted(real_path(path))} (FORMAT parquet)")
        except InputError as error:
            raise DatasetError(f"{path}: cannot be written: {error}") from None
        with pq.ParquetFile(real_path(path)) as file:
            # The engine is trusted to sort, and was caught not to; a reader would refuse the file.
            assert is_in_order(file), f"{path.name} came out unsorted"
            parts[path.name] = Part(
                num_rows=file.metadata.num_rows,
                sha256=file_sha256(path),
                content_digest=content_digest(file),
            )
    return parts

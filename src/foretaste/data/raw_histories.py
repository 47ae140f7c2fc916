"""Histories in raw files: rows of users and items, read without preparing a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foretaste._util.settings import given_or_default
from foretaste.data.columns import check_columns, find_pair
from foretaste.data.config import PairsConfig
from foretaste.data.engine import Engine
from foretaste.data.reading import read_raw
from foretaste.data.scans import Scan
from foretaste.data.sources import check_format_acts, open_scans

_HISTORIES = "SELECT user_id, list(DISTINCT item_id ORDER BY item_id) FROM raw GROUP BY user_id"


def read_histories(
    source: Any, config: PairsConfig | None = None
) -> dict[int | str, list[int | str]]:
    """The items of each user in rows of users and items, each once; both in order.

    ``source`` is whatever `prepare` reads: files of delimited text or Parquet, folders and patterns
    of them, frames, sparse matrices. Only the columns of users and items are read. Ids are integers
    where every one of a column is written as an integer, else text. Raises InputError naming file,
    line and example of what is wrong.
    """
    config = given_or_default("config", config, PairsConfig)
    scans = open_scans(source, config.file_format)
    check_format_acts(config.file_format, scans)
    columns = _columns(scans, config)
    with TemporaryDirectory() as directory, Engine(Path(directory) / "scratch", None, None) as sql:
        read_raw(sql, scans, columns)
        for scan in scans:
            scan.check_unchanged()
        return dict(sorted(sql.run(_HISTORIES)))


def _columns(scans: Sequence[Scan], config: PairsConfig) -> dict[str, str]:
    """The columns of users and items in the first file, which every other file must have too."""
    first = scans[0]
    columns = find_pair(list(first.columns), config, first.name, first.header)
    for scan in scans[1:]:
        check_columns(list(scan.columns), scan.name, columns.values(), first.name)
    return columns

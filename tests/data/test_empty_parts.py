"""Parts without rows, or with only guests, decide nothing about the rows of other parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from foretaste.data import prepare
from tests.databases import write_sqlite

HEADER = "user_id,item_id,timestamp\n"
DAYS = (1, 2, 3)
Alone = list[tuple[dict[str, Any], str]]


@pytest.fixture(scope="module", params=["", "+02:00"], ids=["dates", "dates with an offset"])
def alone(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """Settings and the digest of dates.csv with them; parts without rows lie beside the file."""
    with contextlib.chdir(tmp_path_factory.mktemp("parts")):
        rows = [f"1,{day},2024-05-0{day} 10:00{request.param}\n" for day in DAYS]
        Path("dates.csv").write_text(HEADER + "".join(rows))
        Path("none.csv").write_text(HEADER)
        Path("guests.csv").write_text(f"{HEADER},7,\n1,,\n")
        frame = pd.read_csv("dates.csv", dtype=str).iloc[:0]
        frame.to_parquet("none.parquet")
        frame.astype(float).to_parquet("floats.parquet")
        write_sqlite(Path("none.db"), "CREATE TABLE events (user_id, item_id, timestamp)")
        form = "%Y-%m-%d %H:%M" + ("%z" if request.param else "")
        asked: list[dict[str, Any]] = [{}, {"half_life": "1d"}, {"time_format": form}]
        yield [
            (settings, prepare("dates.csv", str(number), **settings).manifest.digest)
            for number, settings in enumerate(asked)
        ]


@pytest.mark.parametrize(
    "part",
    ["none.csv", "guests.csv", "none.parquet", "floats.parquet", "frame", "sqlite:///none.db"],
)
def test_a_part_without_rows(alone: Alone, part: str, tmp_path: Path) -> None:
    empty: Any = pd.read_parquet("none.parquet") if part == "frame" else part
    for number, (settings, digest) in enumerate(alone):
        made = prepare(
            [empty, "dates.csv"], tmp_path / str(number), empty_ids="drop", **settings
        ).manifest
        assert made.digest == digest
        assert made.notes["times"] == "2024-05-01 to 2024-05-03"
    behind = prepare(["dates.csv", empty], tmp_path / "behind", empty_ids="drop")
    assert behind.manifest.digest == alone[0][1]

"""Parts without rows, or with only guests, decide nothing about the rows of other parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from foretaste.data import prepare
from tests.databases import write_sqlite

HEADER = "user_id,item_id,timestamp\n"
DAYS = (1, 2, 3)


@pytest.fixture(params=["", "+02:00"], ids=["dates", "dates with an offset"])
def offset(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The offset of the times in dates.csv, which has parts without rows beside it."""
    monkeypatch.chdir(tmp_path)
    offset: str = request.param
    rows = [f"1,{day},2024-05-0{day} 10:00{offset}\n" for day in DAYS]
    Path("dates.csv").write_text(HEADER + "".join(rows))
    Path("none.csv").write_text(HEADER)
    Path("guests.csv").write_text(f"{HEADER},7,\n1,,\n")
    frame = pd.read_csv("dates.csv", dtype=str).iloc[:0]
    frame.to_parquet("none.parquet")
    frame.astype(float).to_parquet("floats.parquet")
    write_sqlite(Path("none.db"), "CREATE TABLE events (user_id, item_id, timestamp)")
    return offset


@pytest.mark.parametrize(
    "part",
    ["none.csv", "guests.csv", "none.parquet", "floats.parquet", "frame", "sqlite:///none.db"],
)
def test_a_first_part_without_rows(offset: str, part: str) -> None:
    empty: Any = pd.read_parquet("none.parquet") if part == "frame" else part
    alone = prepare("dates.csv", "alone")
    asked: dict[str, dict[str, Any]] = {
        "nothing": {},
        "half life": {"half_life": "1d"},
        "format": {"time_format": "%Y-%m-%d %H:%M" + ("%z" if offset else "")},
    }
    for name, settings in asked.items():
        made = [
            prepare(parts, f"{name}-{number}", empty_ids="drop", **settings)
            for number, parts in enumerate(([empty, "dates.csv"], ["dates.csv", empty]))
        ]
        assert made[0].manifest.digest == made[1].manifest.digest
        assert made[0].manifest.notes["times"] == "2024-05-01 to 2024-05-03"
        if name != "half life":
            assert made[0].manifest.digest == alone.manifest.digest

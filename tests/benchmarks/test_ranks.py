"""Two ranks beside one process: rows of both, with the ratio of neighbouring turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import ranks


def test_both_sides_have_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    options = "--tiny --cases neumf --precision fp32 --turns 1 --repeats 1 --output"
    ranks.main([*options.split(), str(rows)])
    one, two = (json.loads(line) for line in rows.read_text().splitlines())
    assert [row["case"]["ranks"] for row in (one, two)] == [1, 2]
    assert [row["case"]["threads"] for row in (one, two)] == [2, 1]
    assert one["case"]["updates"] == two["case"]["updates"] == 2
    ratio = two["measured"]["samples_per_s"]["median"] / one["measured"]["samples_per_s"]["median"]
    assert two["measured"]["times_one"]["median"] == pytest.approx(ratio)
    assert two["measured"]["sent_mib"] > 0
    assert "× one rank" in capsys.readouterr().out

"""Bars show the last measured series at NVIDIA's sizes beside the plain side; points show a metric
against seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import draw


def row(median: float, **changed: Any) -> dict[str, Any]:
    case = {"precision": "bf16", "batch_size": 65_536, **changed.pop("case", {})}
    times = {"median": median, "min": median - 1, "max": median + 1}
    return {
        "benchmark": "train",
        "model": "neumf",
        "side": "foretaste",
        "case": case,
        "measured": {"times_plain": times},
        "settings": {"factors": 64},
        "shape": {"num_users": 6040},
        **changed,
    }


def test_a_case_has_the_name_of_what_was_measured() -> None:
    assert draw.case_of(row(8.0)) == "training NeuMF, ML-1M, bf16"
    assert draw.case_of(row(8.0, shape={"num_users": 138_493})) == "training NeuMF, ML-20M, bf16"


def test_the_last_of_a_case_is_drawn(tmp_path: Path) -> None:
    def drawn(*medians: float) -> str:
        (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row(m)) for m in medians))
        draw.main([str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out.svg")])
        return (tmp_path / "out.svg").read_text(encoding="utf-8")

    assert drawn(3.0, 8.0) == drawn(8.0) != drawn(3.0)
    assert "training NeuMF, ML-1M, bf16" in drawn(8.0)


def test_a_metric_is_drawn_against_seconds(tmp_path: Path) -> None:
    def learned(model: str, dataset: str) -> str:
        measured = {"cpu_s": 12.5, "metrics": {"hr@10": [0.1, 0.09, 0.11]}}
        return json.dumps({"model": model, "case": {"dataset": dataset}, "measured": measured})

    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.svg"
    rows.write_text("\n".join([learned("ease", "beauty"), learned("slist", "sports")]))
    draw.main([str(rows), "--output", str(output), "--metric", "hr@10", "--dataset", "beauty"])
    drawn = output.read_text(encoding="utf-8")
    assert "<title>HR@10 against seconds on beauty, with 95 % intervals</title>" in drawn
    assert "ease" in drawn
    assert "slist" not in drawn

"""Quality against the batch: every rate of every batch once, and the table of the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import batch_size
from foretaste.data import GenerateConfig, generate, prepare

SHAPE = GenerateConfig(num_users=60, num_items=40, num_interactions=900, num_genres=4)


def row(batch: int, rate: float, seed: int, validation: float, test: float) -> dict[str, Any]:
    return {
        "model": "gmf",
        "dataset": "small",
        "epochs": 2,
        "select_by": "ndcg@10",
        "best_epoch": seed,
        "batch_size": batch,
        "learning_rate": rate,
        "scaling": "sqrt",
        "seed": seed,
        "validation": validation,
        "test": {"ndcg@10": test},
    }


def tokens_of(tmp_path: Path, options: str) -> list[str]:
    """Arguments for `gmf` on a new dataset, whose rows go to ``rows.jsonl``."""
    dataset = prepare(generate(SHAPE).table, tmp_path / "small").path
    written = ["--output", str(tmp_path / "rows.jsonl"), "--work", str(tmp_path / "work")]
    return ["gmf", str(dataset), *options.split(), *written]


def test_each_rate_is_trained_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, work = tmp_path / "rows.jsonl", tmp_path / "work"
    options = "--batch-sizes 256 1024 --learning-rates 0.001 0.002 --epochs 2 --seeds 1"
    tokens = tokens_of(tmp_path, options)
    batch_size.main(tokens)
    found = output.read_text()
    rows = [json.loads(line) for line in found.splitlines()]
    # 0.002 is both: the second rate as it is, and the first times the root of four
    asked = [(256, 0.001), (256, 0.002)] + [(1024, rate) for rate in (0.001, 0.002, 0.004, 0.008)]
    assert [(row["batch_size"], row["learning_rate"]) for row in rows] == sorted(asked)
    assert [row["settings"]["learning_rate"] for row in rows] == [rate for _, rate in sorted(asked)]
    assert not list(work.iterdir())
    batch_size.main(tokens)
    assert output.read_text() == found
    assert "**gmf on small, 2 epochs, ndcg@10**" in capsys.readouterr().out


def test_scalings_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "rows.jsonl"
    options = "--batch-sizes 256 1024 --learning-rates 0.001 --scalings sqrt --epochs 1 --seeds 1"
    tokens = tokens_of(tmp_path, options)
    batch_size.main(tokens)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    found = [(row["batch_size"], row["learning_rate"], row["scaling"]) for row in rows]
    assert found == [(256, 0.001, "constant"), (1024, 0.002, "sqrt")]
    assert "| 1,024 | 0.002, sqrt |" in capsys.readouterr().out


def test_the_table_takes_the_rate_that_validation_prefers() -> None:
    rows = [
        *(row(10, 0.1, 1, 0.30, 0.20), row(10, 0.1, 2, 0.40, 0.22)),
        *(row(20, 0.1, 1, 0.10, 0.99), row(20, 0.1, 2, 0.10, 0.99)),
        *(row(20, 0.2, 1, 0.20, 0.21), row(20, 0.2, 2, 0.30, 0.25)),
        {**row(40, 0.2, 1, 0.9, 0.9), "diverged": "the loss became nan"},
    ]
    small, large = batch_size.table(rows).rows
    assert small == (
        "10",
        "0.1, sqrt",
        "2",
        "1 to 2",
        "0.3500",
        "0.2100",
        "+0.0000 (+0.0000 to +0.0000)",
    )
    assert large == (
        "20",
        "0.2, sqrt",
        "2",
        "1 to 2",
        "0.2500",
        "0.2300",
        "+0.0200 (+0.0100 to +0.0300)",
    )

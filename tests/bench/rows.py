"""Tiny models, and checks of every row of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.show import read_rows, summary
from foretaste.bench.rows import Row, table_of
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig

SHAPE = "60x50x600"
COMMON: dict[str, Any] = {"shape": SHAPE, "device": "cpu", "repeats": 2}
FAST: dict[str, Any] = {**COMMON, "batch_sizes": (1, 8), "calls": 6}
MODELS: dict[str, NeuMFConfig | VAEConfig] = {
    "neumf": NeuMFConfig(factors=4, layers=(8, 8, 4), negatives=4),
    "vae": VAEConfig(hidden=(8,), latent=4),
}


def check_spread(spread: dict[str, Any]) -> None:
    assert spread["min"] <= spread["median"] <= spread["max"]
    assert min(spread["values"]) > 0


def check_rows(rows: Sequence[Row], written: Path) -> list[dict[str, Any]]:
    """Check the fields of every row; return the written rows."""
    documents = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(documents) == len(rows)
    assert read_rows(written) == [Row(**json.loads(json.dumps(vars(row)))) for row in rows]
    for document in documents:
        assert document["hardware"]["num_threads"] >= 1
        assert document["versions"].keys() >= {"foretaste", "python", "torch", "numpy", "cuda"}
        assert document.keys() >= {"commit", "date", "settings", "options", "shape"}
        assert document["clock"]
        for name, value in document["measured"].items():
            if isinstance(value, dict) and "values" in value:
                check_spread(value)
            assert not name.endswith("_mib") or value >= 0
    assert table_of(rows).to_markdown()
    assert len(summary(rows).rows) == len(rows)
    return documents

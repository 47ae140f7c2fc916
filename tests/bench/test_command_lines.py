"""``foretaste bench``: its commands, options and tables."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import call

TINY = "--shape 60x50x600 --device cpu --repeats 2"
NEUMF = "--factors 4 --layers 8 8 4"


def test_no_sentence_of_a_help_page_is_indented() -> None:
    lines = call("bench", "inference", "vae", "--help").out.splitlines()
    assert not [line for line in lines if line.startswith(" ") and line.strip()]


def test_bench_train_prints_its_table_last(tmp_path: Path) -> None:
    line = f"bench train neumf {TINY} {NEUMF} --batch-size 100 50 --precision fp32 bf16"
    done = call(*line.split(), "--output", tmp_path / "rows.jsonl")
    assert done.status == 0, done.err
    lines = done.out.strip().splitlines()
    assert lines[0] == "**train neumf**"
    assert lines[2].startswith("| side | precision | kernels | batch | samples/s | epoch |")
    assert len(lines) == 4 + 4
    assert "training in bf16, 50 samples a batch" in done.err
    documents = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(documents) == 4
    assert documents[0]["options"]["batch_size"] == [100, 50]
    assert "output" not in documents[0]["options"]


def test_bench_recommend_takes_the_models_options() -> None:
    line = f"bench recommend vae {TINY} --hidden 8 --latent 4 --k 5 --calls 2 --batch-sizes 1 4"
    done = call(*line.split())
    assert done.status == 0, done.err
    assert "**recommend vae**" in done.out
    quiet = call(*line.split(), "--quiet")
    assert quiet.status == 0
    assert (bool(done.err), quiet.err) == (True, "")
    assert "**recommend vae**" in quiet.out

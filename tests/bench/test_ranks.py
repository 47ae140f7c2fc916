"""Benchmarks among ranks: one rank alone, then all of them, in one table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from foretaste.bench.config import TrainBench
from foretaste.bench.rows import Row, table_of
from foretaste.bench.session import Session
from foretaste.bench.train import bench_train
from foretaste.distributed.collectives import Ranks
from tests.bench.rows import COMMON, MODELS, check_rows
from tests.ranks import run_ranks


def trained(ranks: Ranks, output: Path) -> list[Row]:
    config = TrainBench(**COMMON, batch_size=(40,), output=output)
    session = Session("train", MODELS["vae"], config, ranks=ranks)
    bench_train(session, config)
    return session.rows


def test_training_is_measured_on_one_rank_and_on_all(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    rows, others = run_ranks(trained, 2, output)
    assert others == []
    check_rows(rows, output)
    cases = [(r.case["ranks"], r.case["batch_per_rank"], r.case["batch_size"]) for r in rows]
    assert cases == [(1, 40, 40), (2, 20, 40), (2, 40, 80)]
    alone, strong, weak = (row.measured for row in rows)
    for row, name in ((strong, "strong_scaling"), (weak, "weak_scaling")):
        assert row[name] == pytest.approx(
            row["users_per_s"]["median"] / alone["users_per_s"]["median"]
        )
        assert row["sent_mib"] > 0
    headings = table_of(rows).headings
    assert {"ranks", "batch a rank", "strong scaling", "weak scaling", "sent"} <= {*headings}


def test_threads_are_set_before_the_ranks_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_threads = []

    @contextmanager
    def meeting() -> Iterator[Ranks]:
        num_threads.append(torch.get_num_threads())
        yield Ranks()

    monkeypatch.setattr("foretaste.bench.session.join_ranks", meeting)
    before = torch.get_num_threads()
    options = TrainBench(**COMMON, threads=before + 1)
    try:
        with Session.of_ranks("train", MODELS["vae"], options):
            assert num_threads == [before + 1]
    finally:
        torch.set_num_threads(before)

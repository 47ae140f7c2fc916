"""Every measurement beside the plain loops, at tiny size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import inference, rank_all, recommend, scaling, target, train
from benchmarks.session import CachedSession
from benchmarks.show import summary
from foretaste.bench.config import InferenceBench, RecommendBench
from tests.bench.rows import COMMON, FAST, MODELS, SHAPE, check_rows, check_spread
from tests.benchmarks.forked import fork_plain_loops

SCALING: dict[str, Any] = {"device": "cpu", "repeats": 1, "precision": ("fp32", "bf16")}


def run(module: Any, model: str, options: Any, log: Any = None, **settings: Any) -> CachedSession:
    more = {} if log is None else {"log": log}
    session = CachedSession(module.NAME, replace(MODELS[model], **settings), options, **more)
    module.measure(session, options)
    return session


@pytest.mark.parametrize("model", MODELS)
def test_training_is_compared_with_the_plain_loop(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_plain_loops(monkeypatch)
    output = tmp_path / "rows.jsonl"
    options = train.TrainComparison(
        **COMMON, precision=("bf16",), batch_size=(40,), steps=2, output=output
    )
    plain, ours = check_rows(run(train, model, options).rows, output)
    assert [plain["side"], ours["side"]] == ["plain", "foretaste"]
    unit = "samples" if model == "neumf" else "users"
    assert plain["case"]["batch_size"] == ours["case"]["batch_size"]
    assert plain["measured"][f"epoch_{unit}"] == ours["measured"][f"epoch_{unit}"]
    ratios = np.divide(
        plain["measured"]["epoch_s"]["values"], ours["measured"]["epoch_s"]["values"]
    )
    assert ours["measured"]["times_plain"]["values"] == pytest.approx(ratios)
    assert ours["measured"]["warmup_s"] > 0
    assert ours["case"]["precision"] == "bf16"


@pytest.mark.parametrize(
    ("model", "value", "reached"), [("neumf", 1e-6, True), ("vae", 0.9999, False)]
)
def test_time_to_target(model: str, value: float, reached: bool, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = target.Target(
        **COMMON, target=value, select_by="ndcg@10", max_epochs=2, output=output
    )
    rows = run(target, model, options).rows
    check_rows(rows, output)
    (row,) = rows
    assert row.benchmark == "train-target"
    assert row.case["metric"] == "ndcg@10"
    assert row.measured["reached"] is reached
    assert row.measured["epochs"] == len(row.measured["values"]) == (1 if reached else 2)


@pytest.mark.parametrize("model", MODELS)
def test_inference_is_compared_with_the_plain_network(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = InferenceBench(**FAST, output=output)
    documents = check_rows(run(inference, model, options).rows, output)
    for row in documents:
        assert row["case"]["precision"] == "fp32"
        assert ("times_plain" in row["measured"]) == (row["side"] == "foretaste")


@pytest.mark.parametrize("model", MODELS)
def test_recommendation_is_compared_with_the_plain_network(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = RecommendBench(**FAST, k=10, output=output)
    documents = check_rows(run(recommend, model, options).rows, output)
    kinds = {(row["side"], row["case"]["users"]) for row in documents}
    new = {("foretaste", "new users")}
    if model == "neumf":
        assert kinds == {*new, ("foretaste", "known users"), ("plain", "known users")}
    else:
        assert kinds == {*new, ("plain", "new users")}


@pytest.mark.parametrize(("model", "num_users"), [("neumf", None), ("vae", 7)])
def test_ranking_for_all_users(model: str, num_users: int | None, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = rank_all.RankAll(**COMMON, num_users=num_users, k=5, output=output)
    plain, ours = check_rows(run(rank_all, model, options).rows, output)
    assert (plain["side"], ours["side"]) == ("plain", "foretaste")
    assert plain["case"] == ours["case"]
    assert ours["case"]["num_users"] == (num_users or 60)
    assert ours["benchmark"] == "rank-all"
    check_spread(ours["measured"]["times_plain"])


def test_neumf_scaling(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = scaling.NeuMFScaling(
        **SCALING, shape="50x60x300", factor=(1, 3), batch_size=100, output=output
    )
    documents = check_rows(run(scaling, "neumf", options).rows, output)
    cases = [(row["case"]["grown"], row["case"]["factor"]) for row in documents[::2]]
    assert cases == [("nothing", 1), ("users", 3), ("items", 3), ("interactions", 3), ("all", 3)]
    shapes = [row["shape"] for row in documents[::2]]
    assert [shape["num_users"] for shape in shapes] == [50, 150, 50, 50, 150]
    assert [shape["num_items"] for shape in shapes] == [60, 60, 180, 60, 180]
    assert [shape["num_interactions"] for shape in shapes] == [300, 900, 300, 900, 900]
    for row in documents:
        per_s = row["measured"]["samples_per_s"]["median"]
        assert row["measured"]["us_per_sample"] == pytest.approx(1e6 / per_s)


def test_sizes_that_would_not_fit_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "free_on", lambda _: 20_000)
    output = tmp_path / "rows.jsonl"
    options = scaling.VAEScaling(
        device="cpu", repeats=1, shape=SHAPE, items=(50, 80), widths=(8,), output=output
    )
    lines: list[str] = []
    kept, left_out = run(scaling, "vae", options, log=lines.append).rows
    assert "left_out" not in kept.measured
    assert lines[:3] == [
        "planned: items 50, width 8, about 1 MiB",
        "planned: items 80, width 8, about 1 MiB",
        "training in fp32, items 50, width 8",
    ]
    assert lines[-1] == (
        "left out items 80, width 8: training takes about 1 MiB, and 1 MiB are free"
    )
    assert "training takes about" in left_out.measured["left_out"]
    assert "left out" in summary([left_out]).to_markdown()

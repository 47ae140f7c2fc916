"""Every benchmark at tiny size: its rows hold what a reader needs to trust or repeat them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretaste.bench import (
    InferenceBench,
    NeuMFInferenceBench,
    NeuMFScalingBench,
    NeuMFSizes,
    RecommendBench,
    TrainBench,
    VAEScalingBench,
    run_benchmark,
)
from foretaste.bench.commands import BENCHMARKS
from foretaste.bench.generated import keep_interactions, load_histories
from foretaste.bench.rows import Row, read_rows
from foretaste.bench.shapes import parse_shape, shape_of
from foretaste.bench.tables import summary, tables
from foretaste.bench.target import hold_one_out
from foretaste.errors import SettingError, UnsupportedError
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.vae.config import VAEConfig

SHAPE = "60x50x600"
MODELS: dict[str, NeuMFSizes | VAEConfig] = {
    "neumf": NeuMFSizes(factors=4, layers=(8, 8, 4)),
    "vae": VAEConfig(hidden=(8,), latent=4),
}
COMMON: dict[str, Any] = {"shape": SHAPE, "device": "cpu", "repeats": 3}
FAST: dict[str, Any] = {**COMMON, "batch_sizes": (1, 8), "calls": 6, "against": "plain"}
SCALING: dict[str, Any] = {"device": "cpu", "repeats": 1, "precision": ("fp32", "bf16")}


def check_spread(spread: dict[str, Any]) -> None:
    assert spread["min"] <= spread["median"] <= spread["max"]
    assert min(spread["values"]) > 0


def check_rows(rows: list[Row], written: Path) -> list[dict[str, Any]]:
    """What holds for every row; returns the rows as written."""
    documents = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(documents) == len(rows)
    assert [asdict(row) for row in read_rows(written)] == [asdict(row) for row in rows]
    for document in documents:
        assert document["hardware"]["num_threads"] >= 1
        assert document["versions"].keys() >= {"foretaste", "python", "torch", "numpy", "cuda"}
        assert document.keys() >= {"commit", "date", "settings", "options", "shape"}
        assert document["clock"]
        for name, value in document["measured"].items():
            if isinstance(value, dict) and "values" in value:
                check_spread(value)
            assert not name.endswith("_mib") or value >= 0
    assert all(table.to_markdown() for table in tables(rows))
    assert len(summary(rows).rows) == len(rows)
    return documents


@pytest.mark.parametrize("model", MODELS)
def test_training_beside_plain(model: str, tmp_path: Path) -> None:
    output = tmp_path / "new" / "rows.jsonl"
    options = TrainBench(
        **COMMON,
        precision=("fp32", "bf16"),
        batch_size=(40, 20),
        steps=2,
        against="plain",
        output=output,
    )
    documents = check_rows(run_benchmark("train", MODELS[model], options), output)
    assert [row["side"] for row in documents] == ["plain", "foretaste"] * 4
    unit = "samples" if model == "neumf" else "users"
    for plain, ours in zip(documents[::2], documents[1::2], strict=True):
        assert plain["case"]["batch_size"] == ours["case"]["batch_size"]
        assert ours["case"]["updates"] == 2
        assert plain["measured"][f"epoch_{unit}"] == ours["measured"][f"epoch_{unit}"]
        ratios = np.divide(
            plain["measured"]["epoch_s"]["values"], ours["measured"]["epoch_s"]["values"]
        )
        assert ours["measured"]["times_plain"]["values"] == pytest.approx(ratios)
        assert ours["measured"]["warmup_s"] > 0
    shares = ["negatives_share" in row["measured"] for row in documents]
    assert shares == [model == "neumf" and row["side"] == "foretaste" for row in documents]
    assert {row["case"]["precision"] for row in documents[1::2]} == {"fp32", "bf16"}


def test_a_whole_epoch_is_trained_unless_steps_are_given() -> None:
    (row,) = run_benchmark("train", MODELS["neumf"], TrainBench(**COMMON, batch_size=(1000,)))
    assert row.measured["epoch_samples"] == 3000
    assert row.case["updates"] == 3


@pytest.mark.parametrize(("layout", "share"), [("shuffled", True), ("grouped", True)])
def test_steps_hold_for_both_layouts(layout: Any, share: bool) -> None:
    sampling = SamplingConfig(batch_layout=layout)
    options = TrainBench(**COMMON, batch_size=(50,), steps=3)
    (row,) = run_benchmark("train", MODELS["neumf"], options, sampling=sampling)
    assert row.case["updates"] == 3
    assert ("negatives_share" in row.measured) is share


def test_unverified_negatives_have_no_share() -> None:
    sampling = SamplingConfig(verified_negatives=False)
    options = TrainBench(**COMMON, batch_size=(50,), steps=1)
    (row,) = run_benchmark("train", MODELS["neumf"], options, sampling=sampling)
    assert "negatives_share" not in row.measured


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("target", "reached"), [(1e-6, True), (0.9999, False)])
def test_time_to_target(model: str, target: float, reached: bool, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = TrainBench(
        **COMMON, steps=1, target=target, select_by="ndcg@10", max_epochs=2, output=output
    )
    rows = run_benchmark("train", MODELS[model], options)
    check_rows(rows, output)
    row = rows[-1]
    assert row.benchmark == "train-target"
    assert row.case["metric"] == "ndcg@10"
    assert row.measured["reached"] is reached
    assert row.measured["epochs"] == len(row.measured["values"]) == (1 if reached else 2)


def test_one_item_of_each_user_is_held_out() -> None:
    histories = load_histories(shape_of(60, 50, 600), None)
    judged = hold_one_out(histories, seed=4)
    assert judged.train.num_interactions + judged.heldout.num_users == 600
    assert (judged.heldout.target.lengths() == 1).all()
    both = judged.train.rows(judged.heldout.user_index).union(judged.heldout.target)
    expected = histories.rows(judged.heldout.user_index)
    assert np.array_equal(both.item_index, expected.item_index)


@pytest.mark.parametrize("model", MODELS)
def test_inference(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = InferenceBench(**FAST, output=output)
    if model == "neumf":
        options = NeuMFInferenceBench(**FAST, output=output, precision=("fp32", "bf16"))
    documents = check_rows(run_benchmark("inference", MODELS[model], options), output)
    forms = {row["case"].get("form") for row in documents if row["side"] == "foretaste"}
    if model == "neumf":
        assert forms == {"projecting inside the clock", "projecting outside the clock"}
        assert {row["case"]["precision"] for row in documents} == {"fp32", "bf16"}
    else:
        assert forms == {None}
    for row in documents:
        assert row["measured"]["num_calls"] == 6
        latency = row["measured"]["latency_ms"]
        assert latency["p50"] <= latency["p90"] <= latency["p95"] <= latency["p99"]
        assert ("times_plain" in row["measured"]) == (row["side"] == "foretaste")


@pytest.mark.parametrize("model", MODELS)
def test_recommendation_end_to_end(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = RecommendBench(**FAST, k=10, output=output)
    documents = check_rows(run_benchmark("recommend", MODELS[model], options), output)
    kinds = {(row["side"], row["case"]["users"]) for row in documents}
    new = {("foretaste", "new users")}
    if model == "neumf":
        assert kinds == {*new, ("foretaste", "known users"), ("plain", "known users")}
    else:
        assert kinds == {*new, ("plain", "new users")}


@pytest.mark.parametrize("model", MODELS)
def test_recommendation_from_random_histories(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = RecommendBench(**FAST | {"against": None}, k=10, history_length=7, output=output)
    documents = check_rows(run_benchmark("recommend", MODELS[model], options), output)
    assert {row["case"]["users"] for row in documents} == {"new users"}
    for row in documents:
        assert row["case"]["history_length"] == 7
        assert row["shape"]["num_interactions"] == 7 * row["shape"]["num_users"]
    too_long = RecommendBench(**FAST | {"against": None}, history_length=5000)
    with pytest.raises(SettingError, match="history_length is 5000, but there are "):
        run_benchmark("recommend", MODELS[model], too_long)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_users", [None, 7])
def test_ranking_for_all_users(model: str, num_users: int | None, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = RecommendBench(
        **COMMON, all_users=True, num_users=num_users, k=5, against="plain", output=output
    )
    plain, ours = check_rows(run_benchmark("recommend", MODELS[model], options), output)
    assert (plain["side"], ours["side"]) == ("plain", "foretaste")
    assert plain["case"] == ours["case"]
    assert ours["case"]["num_users"] == (num_users or 60)
    assert ours["benchmark"] == "rank-all"
    check_spread(ours["measured"]["times_plain"])


def test_neumf_scaling(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = NeuMFScalingBench(
        **SCALING, shape="50x60x300", factor=(1, 3), batch_size=100, output=output
    )
    documents = check_rows(run_benchmark("scaling", MODELS["neumf"], options), output)
    cases = [(row["case"]["grown"], row["case"]["factor"]) for row in documents[::2]]
    assert cases == [("nothing", 1), ("users", 3), ("items", 3), ("interactions", 3), ("all", 3)]
    shapes = [row["shape"] for row in documents[::2]]
    assert [shape["num_users"] for shape in shapes] == [50, 150, 50, 50, 150]
    assert [shape["num_items"] for shape in shapes] == [60, 60, 180, 60, 180]
    assert [shape["num_interactions"] for shape in shapes] == [300, 900, 300, 900, 900]
    for row in documents:
        per_s = row["measured"]["samples_per_s"]["median"]
        assert row["measured"]["us_per_sample"] == pytest.approx(1e6 / per_s)


def test_vae_scaling(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = VAEScalingBench(
        **SCALING, shape=SHAPE, items=(50, 80), widths=(8, 4), batch_size=20, output=output
    )
    documents = check_rows(run_benchmark("scaling", MODELS["vae"], options), output)
    cases = [(row["case"]["items"], row["case"]["width"]) for row in documents[::2]]
    assert cases == [(50, 8), (80, 4)]
    assert [row["measured"]["num_parameters"] for row in documents[::2]] == [850, 720]


def test_what_would_not_fit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretaste.bench.scaling.free_on", lambda _: 20_000)
    output = tmp_path / "rows.jsonl"
    options = VAEScalingBench(
        device="cpu", repeats=1, shape=SHAPE, items=(50, 80), widths=(8,), output=output
    )
    told: list[str] = []
    kept, left_out = run_benchmark("scaling", MODELS["vae"], options, tell=told.append)
    assert "left_out" not in kept.measured
    assert told[:3] == [
        "planned: items 50, width 8, about 1 MiB",
        "planned: items 80, width 8, about 1 MiB",
        "training in fp32, items 50, width 8",
    ]
    assert told[-1] == "left out items 80, width 8: training takes about 1 MiB, and 1 MiB are free"
    assert "training takes about" in left_out.measured["left_out"]
    assert "left out" in summary([left_out]).to_markdown()


def test_paper_sizes() -> None:
    sizes = NeuMFSizes(paper_sizes=True).model_config()
    assert (sizes.factors, sizes.layers) == (8, (64, 32, 16, 8))
    with pytest.raises(SettingError, match="leave out one or the other"):
        NeuMFSizes(paper_sizes=True, factors=16).model_config()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainBench(repeats=0), "repeats is 0; it must be a whole number of at least 1"),
        (lambda: TrainBench(warmup=-1), "warmup is -1; it must be a whole number of at least 0"),
        (lambda: TrainBench(precision=()), r"precision is \(\); it must be fp32 or"),
        (
            lambda: TrainBench(precision=("fp8",)),
            "precision is .*; it must be a list of fp32, tf32, bf16 or fp16",
        ),
        (lambda: TrainBench(dataset=Path("x")), "give target too"),
        (lambda: InferenceBench(seconds=0.0), "seconds is 0.0; it must be a number above 0"),
        (lambda: InferenceBench(batch_sizes=(0,)), r"batch_sizes is \(0,\)"),
        (lambda: RecommendBench(num_users=5), "num_users belongs to all_users"),
        (
            lambda: RecommendBench(all_users=True, history_length=5),
            "history_length is of new users, not of all_users",
        ),
        (
            lambda: VAEScalingBench(items=(5, 6, 7), widths=(1, 2)),
            "one for each of the 3 items",
        ),
        (
            lambda: run_benchmark("fly", NeuMFSizes()),
            "benchmark is 'fly'; it must be one of train",
        ),
    ],
)
def test_mistakes_are_explained(make: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize("name", ["inference", "recommend"])
@pytest.mark.parametrize("model", MODELS)
def test_calls_that_do_not_fit_are_told_before_any_is_made(name: str, model: str) -> None:
    kind = BENCHMARKS[name].options[model]
    options = kind(device="cpu", shape=SHAPE, batch_sizes=(1, 10**12))
    with pytest.raises(UnsupportedError, match=r"calls of 1,000,000,000,000 at .*; lower batch_s"):
        run_benchmark(name, MODELS[model], options)


def test_more_steps_than_the_data_have_take_all_of_it() -> None:
    histories = load_histories(parse_shape(SHAPE, "neumf"), None)
    assert keep_interactions(histories, 10**30, seed=1) is histories

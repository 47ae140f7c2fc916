"""Every benchmark at tiny size: its rows hold what a reader needs to trust or repeat them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretaste.bench.config import (
    BenchConfig,
    InferenceBench,
    PairsBench,
    RecommendBench,
    TrainBench,
)
from foretaste.bench.inference import bench_inference, pair_cases
from foretaste.bench.recommend import bench_recommend
from foretaste.bench.session import Session
from foretaste.bench.train import bench_train
from foretaste.errors import SettingError
from foretaste.evaluation.ranking import to_device
from tests.bench.rows import COMMON, FAST, MODELS, check_rows
from tests.messages import raises

BENCHMARKS: dict[str, Any] = {
    "train": bench_train,
    "inference": bench_inference,
    "recommend": bench_recommend,
}


def run(name: str, model: str, options: BenchConfig, **settings: Any) -> Session:
    session = Session(name, replace(MODELS[model], **settings), options)
    BENCHMARKS[name](session, options)
    return session


def test_training_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "new" / "rows.jsonl"
    options = TrainBench(**COMMON, precision=("fp32", "bf16"), batch_size=(400, 200), output=output)
    documents = check_rows(run("train", "neumf", options).rows, output)
    cases = [(row["case"]["batch_size"], row["case"]["precision"]) for row in documents]
    assert cases == [(400, "fp32"), (400, "bf16"), (200, "fp32"), (200, "bf16")]
    for row in documents:
        assert row["side"] == "foretaste"
        assert row["case"]["updates"] == -(-600 * 5 // row["case"]["batch_size"])
        assert row["case"]["kernels"] == "chunked"
        assert row["measured"]["warmup_s"] > 0
        assert len(row["measured"]["epoch_s"]["values"]) == 2


@pytest.mark.parametrize("model", MODELS)
def test_inference_is_measured(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = InferenceBench(**FAST, output=output)
    documents = check_rows(run("inference", model, options).rows, output)
    assert [row["case"]["batch_size"] for row in documents] == [1, 8]
    for row in documents:
        assert row["measured"]["num_calls"] == 6
        latency = row["measured"]["latency_ms"]
        assert latency["p50"] <= latency["p90"] <= latency["p95"] <= latency["p99"]


def test_inference_of_pairs(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = PairsBench(**FAST, output=output, pairs=(5, 20_000))
    documents = check_rows(run("inference", "neumf", options).rows, output)
    cases = [(row["case"]["precision"], row["case"]["batch_size"]) for row in documents]
    assert cases == [("fp32", 5), ("fp32", 20_000), ("bf16", 5), ("bf16", 20_000)]
    assert all(row["measured"]["samples_per_s"]["median"] > 0 for row in documents)


def test_pairs_get_the_scores_that_the_catalogue_has() -> None:
    options = PairsBench(**FAST, pairs=(7,))
    session = Session("inference", MODELS["neumf"], options)
    histories = session.histories()
    model = session.build(histories)
    for case, error in zip(pair_cases(model, options), (1e-5, 0.05), strict=True):
        users, items = case.inputs[0]
        scores = case.answer(0)
        rows = to_device(histories.rows(users.numpy()), model.device)
        everything = model.score_catalogue(model.user_state(users, rows))
        expected = everything.gather(1, items[:, None]).squeeze(1)
        assert (scores.float() - expected).norm() <= error * expected.norm()


@pytest.mark.parametrize("model", MODELS)
def test_recommendation_end_to_end(model: str, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    options = RecommendBench(**FAST, k=10, output=output)
    documents = check_rows(run("recommend", model, options).rows, output)
    users = [row["case"]["users"] for row in documents]
    assert users == [*(["known users"] * 2 if model == "neumf" else []), *["new users"] * 2]


def test_recommendation_from_random_histories(tmp_path: Path) -> None:
    model = "neumf"
    output = tmp_path / "rows.jsonl"
    options = RecommendBench(**FAST, k=10, history_length=7, output=output)
    documents = check_rows(run("recommend", model, options).rows, output)
    assert {row["case"]["users"] for row in documents} == {"new users"}
    for row in documents:
        assert row["case"]["history_length"] == 7
        assert row["shape"]["num_interactions"] == 7 * row["shape"]["num_users"]
    with raises(SettingError, "history_length", 5000, 50):
        run("recommend", model, RecommendBench(**FAST, history_length=5000))

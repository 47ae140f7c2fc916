"""One process that trains, evaluates and answers at the same time, in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import foretaste
from foretaste.data import Dataset, GenerateConfig, generate
from foretaste.recommend import Answer, Recommender
from foretaste.runs import Run
from tests.training.trainings import run_of, weights_of

BACKENDS: Any = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
MODELS = ("neumf", "vae", "ease")
NUM_SERIES = 2


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    config = GenerateConfig(num_users=300, num_items=200, num_interactions=6000)
    return foretaste.prepare(generate(config).table, tmp_path_factory.mktemp("threads") / "data")


@pytest.fixture(scope="module")
def runs(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    root = tmp_path_factory.mktemp("runs")
    return {name: train(name, dataset, root / name) for name in MODELS}


@pytest.fixture
def application(request: pytest.FixtureRequest) -> Iterator[str]:
    """An application's choice of float32 products on a CPU."""
    torch.backends.mkldnn.matmul.fp32_precision = request.param  # type: ignore[attr-defined]
    yield request.param
    torch.backends.mkldnn.matmul.fp32_precision = "none"  # type: ignore[attr-defined]


def train(name: str, dataset: Dataset, path: Path) -> Run:
    return run_of(name, dataset, path, epochs=2, batch_size=1024)


def flags() -> list[str]:
    return [backend.fp32_precision for backend in BACKENDS]


def ask(recommender: Recommender) -> list[Answer]:
    known = [answer for user in range(1, 20) for answer in recommender.recommend([user], k=20)]
    return [*known, *recommender.recommend_for([[1, 5, 9], [7]]), *recommender.similar_items([3])]


@pytest.mark.parametrize(
    ("model", "application"),
    [("neumf", "none"), ("vae", "bf16"), ("ease", "none")],
    indirect=["application"],
)
def test_threads_neither_leave_flags_changed_nor_disturb_each_other(
    model: str, application: str, dataset: Dataset, runs: dict[str, Run], tmp_path: Path
) -> None:
    recommender = foretaste.load(runs[model], "cpu")
    before, alone = flags(), ask(recommender)
    metrics = foretaste.evaluate_run(runs[model], device="cpu").metrics
    work: list[Callable[[], object]] = [
        lambda: ask(recommender),
        lambda: ask(foretaste.load(runs[model], "cpu")),
        lambda: foretaste.evaluate_run(runs[model], device="cpu").metrics,
    ]
    for series in range(NUM_SERIES):
        path = tmp_path / str(series)
        work[3:] = [lambda path=path: weights_of(train(model, dataset, path))]  # type: ignore[misc]
        with ThreadPoolExecutor(len(work)) as threads:
            found = [one.result() for one in [threads.submit(each) for each in work]]
        assert flags() == before
        assert found == [alone, alone, metrics, weights_of(runs[model])]

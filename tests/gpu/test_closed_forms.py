"""Models without steps answer on a CUDA GPU as they do on the CPU, each fitted where it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretaste.data import Dataset, GenerateConfig, PrepareConfig, generate, prepare
from foretaste.models.linear.config import EaseConfig
from foretaste.recommend import load
from foretaste.recommend.answers import Answers
from tests.training.trainings import run_of

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

GPU = "cuda"
SHAPE = GenerateConfig(num_users=600, num_items=300, num_interactions=15_000)
MODELS = {
    "ease": ("ease", None),
    "ease of 20 neighbors": ("ease", EaseConfig(neighbors=20)),
    "itemknn": ("itemknn", None),
    "rp3beta": ("rp3beta", None),
    "ials": ("ials", None),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    directory = tmp_path_factory.mktemp("data") / "small"
    return prepare(generate(SHAPE).table, directory, PrepareConfig(protocol="leave-one-out"))


@pytest.mark.parametrize("name", MODELS)
def test_lists_are_those_of_the_cpu(name: str, dataset: Dataset, tmp_path: Path) -> None:
    model, config = MODELS[name]
    user_ids = dataset.users.ids()[:200]

    def lists(device: str) -> Answers:
        settings: dict[str, Any] = {"device": device, "search": False}
        run = run_of(model, dataset, tmp_path / f"on-{device}", config, **settings)
        return load(run, device).recommend(user_ids, 10)

    ours, expected = lists(GPU), lists("cpu")
    scores, expected_scores = (np.array([one.scores for one in them]) for them in (ours, expected))
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-3, atol=1e-4)
    # Near-ties may change places.
    items, expected_items = (np.array([one.item_ids for one in them]) for them in (ours, expected))
    assert (items == expected_items).mean() > 0.99

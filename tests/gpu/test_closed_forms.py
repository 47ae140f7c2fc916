"""Models without a neural step score on a CUDA GPU as on the CPU, fitted on the same device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretaste.data import GenerateConfig
from foretaste.data.synthetic import generate_histories
from foretaste.evaluation.ranking import to_device
from foretaste.models import config_class
from foretaste.models.base import ClosedFormModel, SweepModel
from foretaste.models.linear.config import EaseConfig, SlistConfig
from foretaste.models.registry import build_model

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

DATA = generate_histories(GenerateConfig(num_users=600, num_items=300, num_interactions=9_000))
PLACES = np.arange(DATA.num_interactions) - DATA.offsets[DATA.row_index()]
HISTORIES = replace(DATA, position=PLACES.astype(np.int32))
MODELS: dict[str, tuple[str, Any]] = {
    "ease": ("ease", EaseConfig()),
    "ease of 20 neighbors": ("ease", EaseConfig(neighbors=20)),
    "slist": ("slist", SlistConfig()),
    "itemknn": ("itemknn", config_class("itemknn")()),
    "rp3beta": ("rp3beta", config_class("rp3beta")()),
    "ials": ("ials", config_class("ials")(factors=16)),
}


def scores(name: str, config: Any, device: str) -> Tensor:
    """Scores of all items for 200 users, of a model fitted on ``device``."""
    histories = to_device(HISTORIES, torch.device(device))
    model = build_model(name, config.resolved(300), len(histories), 300).to(device)
    model.count_items(histories)
    if isinstance(model, SweepModel):
        model.reset_parameters(1)
        for epoch in range(3):
            for batch in model.make_batches(histories, batch_size=600, seed=1).epoch(epoch):
                model.sweep(batch)
    else:
        assert isinstance(model, ClosedFormModel)
        model.fit(histories, lambda *how_far: None)
    state = model.eval().user_state(torch.arange(200, device=device), histories[:200])
    return model.score_catalogue(state).cpu()


@pytest.mark.parametrize("name", MODELS)
def test_scores_equal_the_cpus(name: str) -> None:
    ours, expected = (scores(*MODELS[name], device).numpy() for device in ("cuda", "cpu"))
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)

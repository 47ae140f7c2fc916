"""`foretaste.fit` among ranks: they train together, and each has the recommender."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foretaste
from foretaste.data import GenerateConfig, generate
from foretaste.distributed.collectives import Ranks
from foretaste.errors import DataWarning
from foretaste.training import Callback
from tests.ranks import run_ranks

SHAPE = GenerateConfig(num_users=40, num_items=30, num_interactions=500, num_genres=4)
SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {},
    "sparse ease": {"neighbors": 5},
    "gmf": {"factors": 4, "epochs": 2, "learning_rate": 0.01},
    "vae": {"hidden": (12,), "latent": 4, "patience": 1, "eval_every": 1},
}


def lists(ranks: Ranks, model: str, plays: pa.Table, temporary: Path) -> list[list[Any]]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        patch.setattr(tempfile, "tempdir", str(temporary))
        recommender = foretaste.fit(
            model.split()[-1], plays, device="cpu", callback=Callback(), **SETTINGS[model]
        )
    return [answer.item_ids for answer in recommender.recommend(recommender.users.ids(), k=5)]


@pytest.mark.parametrize("model", SETTINGS)
def test_ranks_fit_one_recommender(model: str, tmp_path: Path) -> None:
    """The run is in a directory of the first rank's, which stays until all have read it."""
    plays = generate(SHAPE).table
    (alone,) = run_ranks(lists, 1, model, plays, tmp_path)
    assert run_ranks(lists, 3, model, plays, tmp_path) == [alone] * 3
    assert not list(tmp_path.iterdir())

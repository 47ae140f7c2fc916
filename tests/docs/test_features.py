"""The table of what each model can do agrees with the models."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretaste
from foretaste.data import Dataset
from foretaste.errors import ForetasteError, SettingError, UnsupportedError
from foretaste.models.registry import MODEL_NAMES, config_class
from tests.docs.pages import page
from tests.docs.shop import RATINGS

ROWS = {row[0]: row[1:] for row in page("models.md").rows("What each can do")}
SMALL = {
    "neumf": {"factors": 2, "layers": (4, 2)},
    "gmf": {"factors": 2},
    "mlp": {"layers": (4, 2)},
    "vae": {"hidden": (4,), "latent": 2},
    "dae": {"hidden": (4,), "latent": 2},
    "recvae": {"width": 4, "latent": 2},
    "ials": {"factors": 2},
    "sasrec": {"factors": 2},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("features")
    (folder / "ratings.csv").write_text(RATINGS)
    return foretaste.prepare(folder / "ratings.csv", folder / "data")


def test_every_model_has_a_row() -> None:
    assert list(ROWS) == list(MODEL_NAMES)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_row_is_true(name: str, dataset: Dataset, tmp_path: Path) -> None:
    assert name in ROWS, f"{name} has no row in docs/models.md, What each can do"
    _, parallel, precision, _, starts, similar = ROWS[name]
    epochs = {"epochs": 1, **SMALL[name]} if name in SMALL else {}
    run = foretaste.train(name, dataset, run=tmp_path / "run", **epochs)
    recommender = foretaste.load(run)

    def works(error: type[ForetasteError], settings: dict[str, object]) -> bool:
        try:
            foretaste.train(name, dataset, run=tmp_path / "other", **epochs, **settings)
        except error:
            return False
        return True

    assert parallel == (config_class(name).parallel or "no")
    assert works(SettingError, {"precision": "bf16", "overwrite": True}) == (precision == "all")
    assert works(SettingError, {"start_from": run, "overwrite": True}) == (starts == "yes")
    assert len(recommender.recommend_for([[100, 101]], k=3)[0].items) == 3
    if similar == "yes":
        assert recommender.similar_items([100], k=3)
    else:
        with pytest.raises(UnsupportedError):
            recommender.similar_items([100], k=3)

"""Models by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import is_dataclass

import pytest

from foretaste.errors import SettingError
from foretaste.models import MODEL_NAMES, RecommenderModel, build_model, config_class


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_name_builds_its_model(name: str) -> None:
    config = config_class(name)()
    model = build_model(name, config, num_users=5, num_items=7)
    assert is_dataclass(config)
    assert isinstance(model, RecommenderModel)
    assert model.name == name
    assert (model.num_users, model.num_items) == (5, 7)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"popularity, ease, itemknn, rp3beta; did you mean 'ease'\?"
    ):
        config_class("eaze")
    with pytest.raises(SettingError, match="model is 'svd'; it must be one of neumf, gmf"):
        config_class("svd")


def test_settings_of_another_model_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="neumf takes NeuMFConfig"):
        build_model("neumf", config_class("gmf")(), num_users=5, num_items=7)


def test_names_and_neural_settings_need_no_torch() -> None:
    code = (
        "import sys; from foretaste.models import MODEL_NAMES, config_class;"
        "[config_class(name) for name in ('neumf', 'gmf', 'mlp', 'vae', 'dae')];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

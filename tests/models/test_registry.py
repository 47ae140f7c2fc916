"""Models by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from foretaste.errors import SettingError
from foretaste.models import config_class


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"slist, sasrec, itemknn, rp3beta; did you mean 'ease'\?"
    ):
        config_class("eaze")
    with pytest.raises(SettingError, match="model is 'svd'; it must be one of neumf, gmf"):
        config_class("svd")


def test_names_and_neural_settings_need_no_torch() -> None:
    code = (
        "import sys; from foretaste.models import MODEL_NAMES, config_class;"
        "[config_class(name) for name in ('neumf', 'gmf', 'mlp', 'vae', 'dae')];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

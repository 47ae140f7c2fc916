"""Models by name."""

from __future__ import annotations

import subprocess
import sys

from foretaste.errors import SettingError
from foretaste.models import MODEL_NAMES, config_class
from tests.messages import raises


def test_an_unknown_name_is_refused() -> None:
    with raises(SettingError, "model", "eaze", *MODEL_NAMES, "ease"):
        config_class("eaze")
    with raises(SettingError, "model", "svd", *MODEL_NAMES):
        config_class("svd")


def test_names_and_neural_settings_need_no_torch() -> None:
    code = (
        "import sys; from foretaste.models import MODEL_NAMES, config_class;"
        "[config_class(name) for name in ('neumf', 'gmf', 'mlp', 'vae', 'dae')];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

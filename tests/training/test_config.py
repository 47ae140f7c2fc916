"""Training settings: their ranges, and contradictions between them."""

from __future__ import annotations

from typing import Any

import pytest

from foretaste.errors import SettingError
from foretaste.training import TrainingConfig
from tests.messages import Named, raises


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epochs": 0}, ("epochs", 0, 1)),
        ({"batch_size": 0}, ("batch_size", 0, 1)),
        ({"learning_rate": 0.0}, ("learning_rate", "0.0", 0)),
        ({"beta1": 1.0}, ("beta1", "1.0", 0, 1)),
        ({"beta1": -0.1}, ("beta1", "-0.1", 0, 1)),
        ({"beta2": 1.5}, ("beta2", "1.5", 0, 1)),
        ({"eps": 0.0}, ("eps", "0.0", 0)),
        ({"seed": -1}, ("seed", "-1", 0)),
        ({"seed": 2**63}, ("seed", 9223372036854775808, 0)),
        ({"eval_every": 0}, ("eval_every", 0, 1)),
        ({"patience": -1}, ("patience", "-1", 0)),
        ({"validation_users": 0}, ("validation_users", 0, 1)),
        ({"target": 0.0}, ("target", "0.0", 0)),
        ({"target": 2.0}, ("target", "2.0", 0, 1)),
        ({"checkpoint_every_s": -1}, ("checkpoint_every_s", "-1", 0)),
        ({"ema": 1.0}, ("ema", "1.0", 0, 1)),
        (
            {"learning_rate_schedule": "cosine", "epochs": 9, "patience": 2},
            ("learning_rate_schedule", "cosine", 2, "--patience"),
        ),
        (
            {"schedule_epochs": 9, "learning_rate_schedule": "constant"},
            ("schedule_epochs", 9),
        ),
        (
            {"learning_rate_schedule": "cosine", "epochs": 9, "schedule_epochs": 8},
            ("schedule_epochs", 8, 0, 9),
        ),
        ({"precision": "fp8"}, ("precision", "fp8")),
        (
            {"candidates": "all"},
            ("candidates", "all"),
        ),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], named: Named) -> None:
    with raises(SettingError, *named):
        TrainingConfig(**settings)


def test_limits_of_ranges_are_allowed() -> None:
    TrainingConfig(
        epochs=1,
        batch_size=1,
        beta1=0.0,
        beta2=0.0,
        seed=2**63 - 1,
        patience=0,
        validation_users=1,
        target=1.0,
        checkpoint_every_s=0.0,
    )

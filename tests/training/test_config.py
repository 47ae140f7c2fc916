"""Training settings: their ranges, and contradictions between them."""

from __future__ import annotations

from typing import Any

import pytest

from foretaste.errors import SettingError
from foretaste.training import TrainingConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0; it must be a whole number of at least 1"),
        ({"batch_size": 0}, "batch_size is 0; it must be a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a number above 0"),
        ({"beta1": 1.0}, "beta1 is 1.0; it must be a number of at least 0 and below 1"),
        ({"beta1": -0.1}, "beta1 is -0.1; it must be a number of at least 0 and below 1"),
        ({"beta2": 1.5}, "beta2 is 1.5; it must be a number of at least 0 and below 1"),
        ({"eps": 0.0}, "eps is 0.0; it must be a number above 0"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0 and below"),
        ({"seed": 2**63}, "seed is 9223372036854775808; it must be .* and below 2.63"),
        ({"eval_every": 0}, "eval_every is 0; it must be a whole number of at least 1"),
        ({"patience": -1}, "patience is -1; it must be a whole number of at least 0"),
        ({"validation_users": 0}, "validation_users is 0; it must be a whole number of at least 1"),
        ({"target": 0.0}, "target is 0.0; it must be a number above 0"),
        ({"target": 2.0}, "target is 2.0; it must be a number above 0 and at most 1"),
        ({"checkpoint_every_s": -1}, "checkpoint_every_s is -1; it must be a number of at least 0"),
        ({"ema": 1.0}, "ema is 1.0; it must be a number of at least 0 and below 1 or auto"),
        (
            {"learning_rate_schedule": "cosine", "epochs": 9, "patience": 2},
            "learning_rate_schedule is cosine, .* and patience is 2; leave out --patience",
        ),
        (
            {"schedule_epochs": 9, "learning_rate_schedule": "constant"},
            "schedule_epochs is 9, and a constant learning rate has no schedule; leave it out",
        ),
        (
            {"learning_rate_schedule": "cosine", "epochs": 9, "schedule_epochs": 8},
            "schedule_epochs is 8, after which the learning rate is 0, and epochs is 9; give as",
        ),
        ({"precision": "fp8"}, "precision is 'fp8'; it must be fp32, tf32, bf16 or fp16"),
        (
            {"candidates": "all"},
            "candidates is 'all'; it must be full, new, fixed, sampled-N or nvidia-N",
        ),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
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

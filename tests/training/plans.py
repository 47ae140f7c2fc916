"""Training plans for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foretaste.models.config import TrainingSize
from foretaste.models.vae.config import VAEConfig
from foretaste.models.vae.model import MultVAE
from foretaste.training.auto import TrainingPlan, resolve
from foretaste.training.config import TrainingConfig

_PLAN = resolve(
    TrainingConfig(
        epochs=4,
        batch_size=64,
        learning_rate=0.01,
        learning_rate_schedule="constant",
        beta1=0.9,
        beta2=0.999,
        ema=0.0,
        eval_every=1,
        eval_after=0,
        warm_up_epochs=0,
        patience=0,
        select_by="ndcg@10",
        validation_users=100,
        evaluation_batch=None,
    ),
    MultVAE,
    TrainingSize(num_interactions=1000, num_users=100, num_items=50, protocol="leave-one-out"),
    model_config=VAEConfig(),
    device="cpu",
)


def make_plan(**changes: Any) -> TrainingPlan:
    """A small plan with some settings changed."""
    return replace(_PLAN, **changes)

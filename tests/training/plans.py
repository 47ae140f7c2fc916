"""Training plans for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foretaste.training.resolve import TrainingPlan

_PLAN = TrainingPlan(
    epochs=4,
    batch_size=64,
    learning_rate=0.01,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    seed=1,
    device="cpu",
    precision="fp32",
    loss_scale=None,
    eval_every=1,
    patience=0,
    target=None,
    select_by="ndcg@10",
    validation_users=100,
    candidates="full",
)


def make_plan(**changes: Any) -> TrainingPlan:
    """A small plan with some settings changed."""
    return replace(_PLAN, **changes)

"""What is measured: a model with its settings, built and trained as the project does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from foretaste.data.histories import Histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import NeuralModel
from foretaste.models.memory import check_model_fits
from foretaste.models.neumf.config import NeuMFConfig, SamplingConfig
from foretaste.models.registry import build_model
from foretaste.models.vae.config import VAEConfig
from foretaste.ops.histories import HistoryTensors
from foretaste.training.clock import Clock
from foretaste.training.config import TrainingConfig
from foretaste.training.loop import fit
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.preparing import prepared_batches, prepared_step
from foretaste.training.progress import EpochReport, Progress
from foretaste.training.resolve import TrainingPlan, TrainingSize, resolve
from foretaste.training.state import TrainingState

_REFERENCE = {
    "neumf": {"learning_rate": 0.0045, "beta1": 0.25, "beta2": 0.5},
    "vae": {"learning_rate": 0.004, "beta1": 0.9, "beta2": 0.9},
}
"""The reference's optimizer settings; they change nothing about speed."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to measure."""

    model: NeuMFConfig | VAEConfig
    """Its settings."""

    sampling: SamplingConfig | None = None
    """How NeuMF's negatives are drawn; None for Mult-VAE."""

    def __post_init__(self) -> None:
        if self.name == "neumf" and self.sampling is None:
            object.__setattr__(self, "sampling", SamplingConfig())

    @property
    def name(self) -> str:
        return "neumf" if isinstance(self.model, NeuMFConfig) else "vae"

    @property
    def unit(self) -> str:
        """What a batch counts."""
        return "samples" if self.name == "neumf" else "users"

    def settings(self) -> dict[str, Any]:
        """All settings, as JSON values."""
        return asdict(self.model) | (asdict(self.sampling) if self.sampling else {})

    def build(self, histories: Histories, device: torch.device, seed: int) -> NeuralModel:
        """The untrained model on ``device``, its weights drawn."""
        made_of = (self.name, self.model, histories.num_users, histories.num_items)
        check_model_fits(*made_of, device)
        network = build_model(*made_of)
        assert isinstance(network, NeuralModel)
        network.to(device).count_items(to_device(histories, device))
        network.reset_parameters(seed)
        return network.to(device)

    def plan(
        self,
        precision: str,
        batch_size: int,
        epochs: int,
        seed: int,
        device: torch.device,
        **more: Any,
    ) -> TrainingPlan:
        """A training with the reference's optimizer settings."""
        config = TrainingConfig(
            precision=precision,  # type: ignore[arg-type]
            batch_size=batch_size,
            epochs=epochs,
            seed=seed,
            device=str(device),
            patience=0,
            eval_every=1,
            **_REFERENCE[self.name],  # type: ignore[arg-type]
            **more,
        )
        size = TrainingSize(num_interactions=1, num_users=1, protocol="none")
        samples_each = 1 + self.sampling.negatives if self.sampling else None
        return resolve(config, size, samples_per_interaction=samples_each, device=str(device))

    def size(self, shape: GenerateConfig) -> int:
        """Samples or users in an epoch over data of that shape."""
        if self.sampling is None:
            return shape.num_users
        return shape.num_interactions * (1 + self.sampling.negatives)


class OurTraining:
    """The project's training: its batches, model, optimizer and loop."""

    def __init__(
        self, subject: Subject, model: NeuralModel, histories: HistoryTensors, plan: TrainingPlan
    ) -> None:
        self.model = model
        self.plan = plan
        self.batches = prepared_batches(model, histories, subject.sampling, plan)
        precision = PrecisionPolicy(
            precision=plan.precision, device=histories.device, loss_scale=plan.loss_scale
        )
        self.step = prepared_step(model, self.batches, plan, precision)

    def run(
        self,
        after_epoch: Callable[[EpochReport], None],
        evaluate: Callable[[], Evaluation] | None = None,
    ) -> Clock:
        """Train the plan's epochs; each is told of when the device has finished it."""
        state = TrainingState.begin(
            self.plan,
            num_batches=self.batches.num_batches,
            num_samples=self.batches.num_samples,
            device=self.model.device,
        )
        fit(
            self.step,
            self.batches,
            state,
            evaluate=evaluate,
            keep=lambda: None,
            report=after_epoch,
            checkpoint=lambda: None,
            progress=Progress(),
        )
        return state.clock

"""One update of the weights: forward, backward, optimizer."""

from __future__ import annotations

import torch
from torch import Tensor

from foretaste.models.base import NeuralModel
from foretaste.training.batches import Batch
from foretaste.training.precision import PrecisionPolicy


class Step:
    """Updates ``model`` by one batch at a time; holds all that changes from update to update."""

    def __init__(
        self, model: NeuralModel, optimizer: torch.optim.Optimizer, precision: PrecisionPolicy
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.scaler = precision.scaler()

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of the batch, on the device, as it was before the update."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.products():
            loss: Tensor = self.model(batch)
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        return loss.detach()

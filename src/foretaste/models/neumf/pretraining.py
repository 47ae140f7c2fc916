"""NeuMF from its two halves trained alone (He et al. 2017, section 3.4.1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from foretaste.models.base import NeuralModel
from foretaste.models.neumf.model import NeuMF

HALVES = {
    "gmf": ("user_factors", "item_factors"),
    "mlp": ("user_embedding", "item_embedding", "tower."),
}
"""What the names of the parameters begin with that NeuMF takes from each half as they are."""


@torch.no_grad()
def join_outputs(
    model: NeuralModel, gmf: Mapping[str, Tensor], mlp: Mapping[str, Tensor], alpha: float
) -> None:
    """Set the output layer to ``[alpha h_GMF ; (1 - alpha) h_MLP]``, its bias alike.

    A user's and item's logit is then ``alpha`` times GMF's and ``1 - alpha`` times the tower's.
    """
    assert isinstance(model, NeuMF)
    for name, parameter in model.output.named_parameters():
        halves = (alpha * gmf[f"output.{name}"], (1.0 - alpha) * mlp[f"output.{name}"])
        joined = torch.cat(halves, dim=1) if name == "weight" else halves[0] + halves[1]
        parameter.copy_(joined)

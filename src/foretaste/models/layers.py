"""Layers of several families' networks."""

from __future__ import annotations

from torch import nn


class Layer(nn.Linear):
    """A layer whose weights only the model fills; PyTorch's own warns if it has no rows."""

    def reset_parameters(self) -> None:
        """Do nothing: the model's own method fills them."""

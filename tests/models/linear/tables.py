"""Weights of few neighbours as a table of all pairs."""

from __future__ import annotations

import numpy as np

from foretaste.models.linear.ridge import RidgeModel
from foretaste.ops.histories import HistoryTensors


def neighbor_weights(
    model: RidgeModel, histories: HistoryTensors, num_neighbors: int
) -> np.ndarray:
    """The weights [I, I] from row to column that the sparse solver finds."""
    found = model.neighbor_weights(model.entries(histories), num_neighbors, lambda *how_far: None)
    table = np.zeros((model.num_items, model.num_items))
    target, place = np.nonzero(found[0] >= 0)
    table[found[0][target, place], target] = found[1][target, place]
    return table

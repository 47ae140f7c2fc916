"""Item-kNN: the weight is the cosine of the items' columns of users, shrunk towards zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretaste.models.linear.config import ItemKNNConfig
from foretaste.models.linear.neighbors import NeighborsModel
from foretaste.models.linear.pairs import (
    Numbers,
    entries_of,
    entry_weights,
    gram_diagonal,
    user_weights,
)
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


class ItemKNN(NeighborsModel):
    """For n users of each item and c of both, the weight is ``c / (sqrt(n_i n_j) + shrinkage)``.

    With a ``user_power`` users with many items count less in all three. If interactions have
    weights, n is the sum of their squares, c the sum of their products.
    """

    name = "itemknn"
    config_class = ItemKNNConfig

    def formula(self, histories: HistoryTensors) -> tuple[Entries, Numbers, Numbers, float]:
        weight_U = user_weights(histories, self.config.user_power)
        entries = entries_of(histories, weight_U, entry_weights(histories))
        # The diagonal is n of the class docstring.
        length_I = np.sqrt(gram_diagonal(entries))
        return entries, length_I, length_I, self.config.shrinkage

"""RP3beta: the weight is the chance of a random walk from an item over its users to another.

Paudel et al. 2017, "Updatable, accurate, diverse, and scalable recommendations for interactive
applications".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretaste.models.linear.config import RP3betaConfig
from foretaste.models.linear.neighbors import NeighborsModel
from foretaste.models.linear.pairs import Numbers, entries_of, entry_weights
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


class RP3beta(NeighborsModel):
    """The weight is ``n_i^-alpha (sum over the users of both of n_u^-alpha) n_j^-beta``.

    n is the number of a user's or an item's interactions; the first two factors are the steps out
    of the item and out of the user. If interactions have weights, a step takes each in
    proportion to its weight, and n is the sum of the weights.
    """

    name = "rp3beta"
    config_class = RP3betaConfig

    @property
    def cuts_sources(self) -> bool:
        return bool(self.config.cut == "source")

    def formula(self, histories: HistoryTensors) -> tuple[Entries, Numbers, Numbers, float]:
        alpha, value_N = self.config.alpha, entry_weights(histories)
        total_U = histories.total_weights().cpu().numpy()
        item_N = histories.item_index.cpu().numpy()
        total_I = np.bincount(item_N, value_N, minlength=self.num_items)
        # A user without items is in no pair.
        weight_U = np.where(total_U > 0, total_U, 1.0) ** -alpha
        # An interaction of weight v, among weights of sum n, is a step of probability v / n.
        entries = entries_of(histories, weight_U, value_N**alpha)
        return entries, total_I**alpha, total_I**self.config.beta, 0.0

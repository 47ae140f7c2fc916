"""EASE: a linear item-to-item model in closed form.

Steck 2019, arXiv 1905.03375; with dropout of the histories EDLAE: Steck 2020, "Autoencoders that
don't overfit towards the Identity".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste.models.linear.config import EaseConfig
from foretaste.models.linear.pairs import Numbers, entries_of, entry_weights, user_weights
from foretaste.models.linear.ridge import RidgeModel
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.models.linear.kernels import Entries


class Ease(RidgeModel):
    """Scores an item by the summed weights towards it of the items in the history.

    X are the users' histories, of 1 or of weights. Z are the same with a share ``dropout`` of the
    entries dropped and the others scaled up. The weights B have a zero diagonal and minimise
    ``|X - ZB|² + l2 |B|²``, on average over all ways to drop. For ``G = XᵀX`` and its diagonal D
    that is the ridge with ``A = G`` and the penalty ``dropout / (1 - dropout) D + l2``: equations 8
    and 9 of Steck 2020. With a ``user_power`` the errors of users with many items weigh less, and G
    is the weighted sum over users.
    """

    name = "ease"
    config_class = EaseConfig
    # Memory of the float64 matrix that is inverted, the float32 weights, and parts of both.
    bytes_per_pair = 13
    counted_by = ("user_power",)

    def entries(self, histories: HistoryTensors) -> Entries:
        weight_U = user_weights(histories, self.config.user_power)
        return entries_of(histories, weight_U, entry_weights(histories))

    def penalties(self, diagonal_I: Numbers) -> Numbers:
        l2: float = self.config.l2
        dropout: float = self.config.dropout
        return l2 + dropout / (1 - dropout) * diagonal_I

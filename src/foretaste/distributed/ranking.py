"""Ranking by several ranks: each takes its users, and all have the ranks of all users."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.distributed.collectives import Ranks
from foretaste.distributed.share import own_batches
from foretaste.evaluation.evaluator import Ranking
from foretaste.models.neumf.fold_in import Reductions
from foretaste.models.neumf.model import NeuMF


class SharedRanking(Ranking):
    """A `Ranking` that all ranks make and run together.

    Metrics are to the last bit those of a single process with the same weights and as many threads.
    Progress goes by the share of a rank's own users that is done.
    """

    def __init__(self, ranks: Ranks, *settings: Any) -> None:
        super().__init__(*settings)
        self._ranks = ranks

    def begin(self) -> None:
        if isinstance(self._model, NeuMF) and self._model.is_part:
            self._model.learn_prior(Reductions(self.total, self._ranks.max_))

    def batches(self) -> list[tuple[NDArray[np.int64], slice]]:
        return list(own_batches(self._ranks, self._model, self._heldout, self._at_once))

    def total(self, tensor: Tensor) -> Tensor:
        self._ranks.sum_(tensor := tensor.clone())
        return tensor

    def least(self, tensor: Tensor) -> Tensor:
        return self._ranks.min_(tensor)

    def gathered(self, rows: Tensor) -> Tensor:
        return torch.cat(self._ranks.gathered(rows))

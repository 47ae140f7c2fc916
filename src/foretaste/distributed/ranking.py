"""Ranking by several ranks: each takes its users, and all have the ranks of all users."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.distributed.collectives import Ranks
from foretaste.evaluation.evaluator import Ranking


class SharedRanking(Ranking):
    """A `Ranking` that all ranks make and run together.

    Metrics equal, to the last bit, a single process's with the same weights and number of threads.
    Progress shows the share of this rank's own users that is done.
    """

    def __init__(self, ranks: Ranks, *settings: Any) -> None:
        super().__init__(*settings)
        self._ranks = ranks

    def begin(self) -> None:
        self._model.sync_shards(self._ranks)

    def batches(self) -> list[tuple[NDArray[np.int64], slice]]:
        """Return the batches of one process, so that their products are the same to the bit.

        Each rank gets consecutive batches. If ranks have only the rows of some users, a batch of
        known users goes to every rank that has some of them, and each ranks its own.
        """
        whole, own = super().batches(), []
        model, user_index = self._model, self._heldout.user_index
        if model.is_part:
            is_known = [user_index[rows[0]] < self._heldout.num_train_users for rows, _ in whole]
            num_known = sum(is_known)
            # Batches of known users come first, in ascending order: a rank's own are one slice of
            # each.
            for rows, _ in whole[:num_known]:
                bounds = (model.users.start, model.users.stop)
                start, stop = np.searchsorted(user_index[rows], bounds).tolist()
                if start < stop:
                    own.append((rows, slice(start, stop)))
            whole = whole[num_known:]
        # Whole batches, each once: padding would count users twice.
        return own + [whole[number] for number in self._ranks.part_of(len(whole))]

    def total(self, tensor: Tensor) -> Tensor:
        return self._ranks.total(tensor)

    def minimum(self, tensor: Tensor) -> Tensor:
        return self._ranks.min_(tensor)

    def gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self._ranks.gather(rows))

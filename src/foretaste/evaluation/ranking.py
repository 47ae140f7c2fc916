"""Ranks the held-out items of all users, batch by batch, on the model's device.

Shape suffixes: B users, T targets per user, P places of the longest list, I items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.evaluation.config import CandidateRule
from foretaste.evaluation.metrics import TargetPlaces
from foretaste.evaluation.places import ABSENT, TopList, place_targets, top_list
from foretaste.evaluation.scoring import Scored, exact_scores, score_full, score_sampled, to_device
from foretaste.models.base import RecommenderModel, UserState

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut

_SCORES_AT_ONCE = 1 << 24
"""Scores of one batch when ranking the catalogue: 64 MiB of float32."""
_CANDIDATES_AT_ONCE = 1 << 16
"""Candidates of one batch otherwise; each may cost a row of activations in a model's tower."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranked:
    """What ranking all users found."""

    places: TargetPlaces
    best_place_I: NDArray[np.int64]
    """The best place (from 0) of each catalogue item in any user's list; the number of places
    where it is in none. Only told of ``full`` candidates."""
    num_short: int
    """Users with fewer negatives to draw from than asked for."""


class Ranker:
    """Ranks users against candidates of one rule and gathers where their targets came out."""

    def __init__(
        self,
        model: RecommenderModel,
        heldout: HeldOut,
        rule: CandidateRule,
        *,
        num_places: int,
        num_train_users: int,
        seed: int,
    ) -> None:
        self.model = model
        self.heldout = heldout
        self.rule = rule
        self.num_places = num_places
        self.num_train_users = num_train_users
        self.seed = seed
        self.best_place_I = torch.full((model.num_items,), num_places, device=model.device)
        self.num_short = torch.zeros((), dtype=torch.int64, device=model.device)
        self.batches: list[tuple[NDArray[np.int64], Tensor, Tensor]] = []

    def run(self, progress: Callable[[int, int], None] | None) -> Ranked:
        """Rank every user of ``heldout``; ``progress`` hears (users done, users in all)."""
        num_done = 0
        with exact_scores(self.model):
            for rows in self._batches():
                self._rank(rows)
                num_done += len(rows)
                if progress is not None:
                    progress(num_done, self.heldout.num_users)
        return Ranked(
            places=self._places(),
            best_place_I=self.best_place_I.cpu().numpy(),
            num_short=int(self.num_short),
        )

    def _batches(self) -> Iterator[NDArray[np.int64]]:
        """Rows of known users, then rows of new ones, as many at once as memory allows."""
        if self.rule.kind == "full":
            num_at_once = _SCORES_AT_ONCE // self.model.num_items
        else:
            most_targets = int(self.heldout.target.lengths().max())
            num_at_once = _CANDIDATES_AT_ONCE // (most_targets + self.rule.num_negatives)
        is_known = self.heldout.user_index < self.num_train_users
        for rows in (np.flatnonzero(is_known), np.flatnonzero(~is_known)):
            for start in range(0, len(rows), max(1, num_at_once)):
                yield rows[start : start + max(1, num_at_once)]

    def _rank(self, rows: NDArray[np.int64]) -> None:
        batch = self.heldout.rows(rows)
        scored = self._score(batch)
        top = top_list(scored.score_BC, self.num_places)
        above_BT, tied_BT = place_targets(top, scored.target_score_BT)
        real_BT = scored.is_target_BT
        user_T = np.repeat(rows, batch.target.within(self.model.num_items).lengths())
        self.batches.append((user_T, above_BT[real_BT].cpu(), tied_BT[real_BT].cpu()))
        self.num_short += scored.num_short
        if self.rule.kind == "full":
            self._note_places(top)

    def _score(self, batch: HeldOut) -> Scored:
        state = self._user_state(batch)
        if self.rule.kind == "full":
            return score_full(self.model, state, batch)
        return score_sampled(self.model, state, batch, self.rule, self.seed)

    def _user_state(self, batch: HeldOut) -> UserState:
        history = to_device(batch.history, self.model.device)
        if batch.user_index[0] >= self.num_train_users:
            return self.model.fold_in(history)
        user_index_B = torch.tensor(batch.user_index, dtype=torch.int64, device=self.model.device)
        return self.model.user_state(user_index_B, history)

    def _note_places(self, top: TopList) -> None:
        place_P = torch.arange(top.score_BP.shape[1], device=self.model.device)
        place_BP = torch.where(top.score_BP == ABSENT, self.num_places, place_P)
        self.best_place_I.scatter_reduce_(
            0, top.candidate_BP.flatten(), place_BP.flatten(), reduce="amin"
        )

    def _places(self) -> TargetPlaces:
        users, aboves, ties = zip(*self.batches, strict=True)
        return TargetPlaces(
            user_T=np.concatenate(users),
            above_T=torch.cat(aboves).numpy(),
            tied_T=torch.cat(ties).numpy(),
            num_targets_U=self.heldout.target.lengths(),
        )

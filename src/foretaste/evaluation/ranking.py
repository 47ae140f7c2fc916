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

from foretaste._util.memory import require_memory
from foretaste.evaluation.config import CandidateRule
from foretaste.evaluation.metrics import TargetPlaces
from foretaste.evaluation.places import ABSENT, TopList, place_targets, top_list
from foretaste.evaluation.scoring import (
    Scored,
    score_fixed,
    score_full,
    score_sampled,
    scoring,
    to_device,
)
from foretaste.models.base import RecommenderModel, UserState
from foretaste.models.memory import free_on
from foretaste.ops.precision_flags import float32_products
from foretaste.ops.spans import span

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut

_SCORES_AT_ONCE = 1 << 24
"""Scores of one batch when ranking the catalogue: 64 MiB of float32."""
_CANDIDATES_AT_ONCE = 1 << 16
"""Candidates of one batch otherwise; each may cost a row of activations in a model's tower."""

_BYTES_PER_SCORE = 12
"""Of a batch's scores: float32, as they come, with known items out, and ordered."""


def check_ranking_fits(num_users: int, num_candidates: int, device: torch.device) -> None:
    """UnsupportedError where so many users cannot be ranked at once on a device."""
    require_memory(
        num_users * num_candidates * _BYTES_PER_SCORE,
        free_on(device),
        f"ranking {num_candidates:,} items for {num_users:,} users at once",
        "lower evaluation_batch, or leave it out",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranked:
    """What ranking all users found."""

    places: TargetPlaces
    best_place_I: NDArray[np.int64]
    """The best place (from 0) of each catalogue item in any user's list, and the number of places
    where it is in none; told of ``full`` candidates only."""
    num_samples: int
    """Pairs of a user and a candidate, as `Scored` counts them."""
    num_short: int
    """Users with fewer negatives to draw from than asked for."""


class Ranker:
    """Ranks users against candidates of one rule and gathers where their targets came out.

    Its arguments are those of `evaluate`; ``num_places`` is the longest list.
    """

    def __init__(
        self,
        model: RecommenderModel,
        heldout: HeldOut,
        rule: CandidateRule,
        *,
        num_places: int,
        num_train_users: int,
        seed: int,
        batch: int | None = None,
    ) -> None:
        self._model = model
        self._heldout = heldout
        self._rule = rule
        self._num_places = num_places
        self._num_train_users = num_train_users
        self._seed = seed
        self._batch = batch
        self._best_place_I = torch.full((model.num_items,), num_places, device=model.device)
        self._num_samples = torch.zeros((), dtype=torch.int64, device=model.device)
        self._num_short = torch.zeros_like(self._num_samples)
        self._batches: list[tuple[NDArray[np.int64], Tensor, Tensor]] = []
        if batch is not None:
            columns = model.num_items if rule.kind == "full" else self._most_candidates()
            check_ranking_fits(min(batch, heldout.num_users), columns, model.device)

    def run(self, progress: Callable[[int, int], None] | None) -> Ranked:
        """Rank every user of ``heldout``; ``progress`` hears (users done, users in all)."""
        num_done = 0
        with scoring(self._model):
            for rows in self._row_batches():
                with span("evaluate"), float32_products(self._model.device):
                    self._rank(rows)
                num_done += len(rows)
                if progress is not None:
                    progress(num_done, self._heldout.num_users)
        return Ranked(
            places=self._places(),
            best_place_I=self._best_place_I.cpu().numpy(),
            num_samples=int(self._num_samples),
            num_short=int(self._num_short),
        )

    def _row_batches(self) -> Iterator[NDArray[np.int64]]:
        """Rows of known users, then rows of new ones, as many at once as was asked for."""
        num_at_once = self._batch or self._most_at_once()
        is_known = self._heldout.user_index < self._num_train_users
        for rows in (np.flatnonzero(is_known), np.flatnonzero(~is_known)):
            for start in range(0, len(rows), num_at_once):
                yield rows[start : start + num_at_once]

    def _most_at_once(self) -> int:
        """Users of a batch, as memory allows."""
        if self._rule.kind == "full":
            return max(1, _SCORES_AT_ONCE // self._model.num_items)
        return max(1, _CANDIDATES_AT_ONCE // self._most_candidates())

    def _most_candidates(self) -> int:
        """Targets and negatives of a user, at most."""
        most_targets = int(self._heldout.target.lengths().max())
        given = self._heldout.candidates
        if self._rule.kind == "fixed" and given is not None:
            return most_targets + int(given.lengths().max())
        return most_targets + self._rule.num_draws(self._model.num_items)

    def _rank(self, rows: NDArray[np.int64]) -> None:
        batch = self._heldout.rows(rows)
        scored = self._score(batch)
        top = top_list(scored.score_BC, self._num_places)
        above_BT, tied_BT = place_targets(top, scored.target_score_BT)
        real_BT = scored.is_target_BT
        user_T = np.repeat(rows, batch.target.within(self._model.num_items).lengths())
        self._batches.append((user_T, above_BT[real_BT].cpu(), tied_BT[real_BT].cpu()))
        self._num_samples += scored.num_samples
        self._num_short += scored.num_short
        if self._rule.kind == "full":
            self._note_places(top)

    def _score(self, batch: HeldOut) -> Scored:
        state = self._user_state(batch)
        if self._rule.kind == "full":
            return score_full(self._model, state, batch)
        if self._rule.kind == "fixed":
            return score_fixed(self._model, state, batch)
        return score_sampled(self._model, state, batch, self._rule, self._seed)

    def _user_state(self, batch: HeldOut) -> UserState:
        history = to_device(batch.history, self._model.device)
        if batch.user_index[0] >= self._num_train_users:
            return self._model.fold_in(history)
        user_index_B = torch.tensor(batch.user_index, dtype=torch.int64, device=self._model.device)
        return self._model.user_state(user_index_B, history)

    def _note_places(self, top: TopList) -> None:
        place_P = torch.arange(top.score_BP.shape[1], device=self._model.device)
        place_BP = torch.where(top.score_BP == ABSENT, self._num_places, place_P)
        self._best_place_I.scatter_reduce_(
            0, top.candidate_BP.flatten(), place_BP.flatten(), reduce="amin"
        )

    def _places(self) -> TargetPlaces:
        users, aboves, ties = zip(*self._batches, strict=True)
        return TargetPlaces(
            user_T=np.concatenate(users),
            above_T=torch.cat(aboves).numpy(),
            tied_T=torch.cat(ties).numpy(),
            num_targets_U=self._heldout.target.lengths(),
        )

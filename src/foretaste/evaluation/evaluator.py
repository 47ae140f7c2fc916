"""Metrics of a model on held-out items: every user counts once, ties by expectation.

Shape suffixes: B users, T targets per user, N negatives, C candidates (targets and negatives),
I items of the catalogue, K ranks of the longest list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.errors import DatasetError, TrainingError
from foretaste.evaluation.candidates import candidates_key, choose_users, draw_negatives
from foretaste.evaluation.config import CandidateRule, checked_lengths, metric_name, parse_metric
from foretaste.evaluation.metrics import TargetRanks, user_metrics
from foretaste.evaluation.ranking import (
    ABSENT,
    check_ranking_fits,
    scoring,
    state_of,
    target_ranks,
    to_device,
    top_k,
    user_batches,
    users_at_once,
    without_items,
)
from foretaste.evaluation.result import Evaluation, Metric, mean_interval, wilson_interval
from foretaste.models.base import RecommenderModel
from foretaste.ops.precision_flags import float32_products
from foretaste.ops.spans import span

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut
    from foretaste.data.histories import Histories
    from foretaste.ops.histories import HistoryTensors

_CANDIDATES_AT_ONCE = 1 << 16
"""Candidates of one batch, if not the catalogue: each may cost a row of activations in a tower."""


def evaluate(
    model: RecommenderModel,
    heldout: HeldOut,
    *,
    num_train_users: int,
    protocol: str,
    candidates: str = "full",
    k: Sequence[int],
    seed: int,
    users: NDArray[np.integer] | None = None,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Metrics of ``model`` on ``heldout`` at the list lengths ``k``, computed on its device.

    Args:
        model: scores the catalogue that ``heldout.history`` counts.
        heldout: the users, what the model may know of them, and what it should find.
        num_train_users: users below this number were trained on (`user_state`); the others are
            answered by `fold_in`.
        protocol: how the dataset was split, as it is to be printed.
        candidates: ``full``, ``sampled-N``, ``nvidia-N`` or ``fixed``.
        k: list lengths, each at least 1; beyond the number of candidates, all of them.
        seed: the dataset's seed, which keys the negatives.
        users: rows of ``heldout`` to look at; all of them by default.
        batch: users ranked at once; by default as many as memory is reserved for.
        progress: called with the number of users done and of all users after each batch.

    Raises SettingError for candidates and lengths that do not exist, DatasetError where nothing
    is held out, the model has another catalogue or no candidates came with the dataset,
    TrainingError for scores that are not finite.
    """
    started = time.perf_counter()
    rule = CandidateRule.parse(candidates)
    lengths = checked_lengths(k)
    requested = heldout if users is None else heldout.rows(users)
    counted = requested.rows(np.flatnonzero(requested.target.lengths()))
    _check(model, counted, rule)
    ranker = _Ranker(model, counted, rule, lengths[-1], num_train_users, seed, batch)
    ranks = ranker.run(progress)
    per_user = user_metrics(ranks, lengths)
    metrics = _means(per_user, one_target=bool((ranks.num_targets_U == 1).all()))
    if rule.kind == "full":  # lists of sampled candidates say nothing of the catalogue's coverage
        for length in lengths:
            share = float((ranker.best_rank_I.cpu().numpy() < length).mean())
            name = metric_name("coverage", length)
            metrics[name] = Metric(name=name, value=share, low=None, high=None)
    return Evaluation(
        split=heldout.split,
        protocol=protocol,
        candidates=candidates,
        metrics=metrics,
        num_users=counted.num_users,
        num_users_without_target=requested.num_users - counted.num_users,
        num_unseen_targets=counted.target.num_interactions - len(ranks.user_T),
        num_short_candidate_lists=int(ranker.num_short),
        num_samples=int(ranker.num_samples),
        elapsed_s=time.perf_counter() - started,
        user_index=counted.user_index,
        per_user=per_user,
        dataset_digest=heldout.dataset_digest,
    )


def validation_rows(heldout: HeldOut, limit: int = 10_000, *, seed: int) -> NDArray[np.int64]:
    """Rows of ``heldout`` to validate on: at most ``limit`` users with a target, chosen by hash."""
    rows = np.flatnonzero(heldout.target.lengths())
    return rows[choose_users(heldout.user_index[rows], limit, seed)]


def _check(model: RecommenderModel, heldout: HeldOut, rule: CandidateRule) -> None:
    if heldout.num_users == 0:
        raise DatasetError(
            f"the {heldout.split} part holds no user with a held-out item, so there is nothing to "
            "measure; prepare the dataset with more users or other filters"
        )
    if heldout.history.num_items != model.num_items:
        raise DatasetError(
            f"the model knows {model.num_items:,} items, this dataset's catalogue has "
            f"{heldout.history.num_items:,}: evaluate on the dataset the model was trained on"
        )
    if rule.kind == "fixed" and heldout.candidates is None:
        raise DatasetError(
            f"candidates is fixed, and none came with the {heldout.split} part; use full or "
            "sampled-99, or prepare the dataset with candidates of its own"
        )


def _means(per_user: dict[str, NDArray[np.float64]], *, one_target: bool) -> dict[str, Metric]:
    """Means over users with their intervals; Wilson's for a share of users (HR, one target)."""
    means = {}
    for name, values in per_user.items():
        mean = float(values.mean())
        if one_target and parse_metric(name)[0] == "hr":
            low, high = wilson_interval(mean, len(values))
        else:
            low, high = mean_interval(values)
        means[name] = Metric(name=name, value=mean, low=low, high=high)
    return means


class _Ranker:
    """Ranks of the held-out items of all users, batch by batch, on the model's device.

    ``k`` is the length of the longest list; the other arguments are those of `evaluate`.
    """

    def __init__(
        self,
        model: RecommenderModel,
        heldout: HeldOut,
        rule: CandidateRule,
        k: int,
        num_train_users: int,
        seed: int,
        batch: int | None,
    ) -> None:
        self._model = model
        self._heldout = heldout
        self._rule = rule
        self._k = k
        self._num_train_users = num_train_users
        self._key = candidates_key(seed, heldout.split)
        self._batches: list[tuple[NDArray[np.int64], Tensor, Tensor]] = []
        # the best rank (from 0) of each item in any user's list, k where it is in none
        self.best_rank_I = torch.full((model.num_items,), k, device=model.device)
        # pairs of a user and a candidate: targets and what was drawn, repeats too
        self.num_samples = torch.zeros((), dtype=torch.int64, device=model.device)
        # users with fewer negatives to draw from than asked for
        self.num_short = torch.zeros_like(self.num_samples)
        num_candidates = model.num_items
        self._at_once = users_at_once(num_candidates, model.device)
        if rule.kind != "full":
            most_targets = int(heldout.target.lengths().max())
            fixed = heldout.candidates if rule.kind == "fixed" else None
            most_negatives = (
                rule.num_draws(model.num_items) if fixed is None else int(fixed.lengths().max())
            )
            num_candidates = most_targets + most_negatives
            self._at_once = max(1, _CANDIDATES_AT_ONCE // num_candidates)
        if batch is not None:
            check_ranking_fits(batch, heldout.num_users, num_candidates, model.device)
            self._at_once = batch

    def run(self, progress: Callable[[int, int], None] | None) -> TargetRanks:
        """Rank every user of ``heldout``; ``progress`` gets (users done, users in all)."""
        heldout, num_done = self._heldout, 0
        with scoring(self._model):
            for rows in user_batches(heldout.user_index, self._num_train_users, self._at_once):
                with span("evaluate"), float32_products(self._model.device):
                    self._rank(rows)
                num_done += len(rows)
                if progress is not None:
                    progress(num_done, heldout.num_users)
        users, aboves, ties = zip(*self._batches, strict=True)
        return TargetRanks(
            user_T=np.concatenate(users),
            above_T=torch.cat(aboves).numpy(),
            tied_T=torch.cat(ties).numpy(),
            num_targets_U=heldout.target.lengths(),
        )

    def _rank(self, rows: NDArray[np.int64]) -> None:
        model, device = self._model, self._model.device
        batch = self._heldout.rows(rows)
        target = batch.target.within(model.num_items)
        target_BT, is_target_BT = pad(to_device(target, device))
        history = to_device(batch.history, device)
        state = state_of(model, batch.user_index, history, self._num_train_users)
        if self._rule.kind == "full":
            score_BC = self._finite(model.score_catalogue(state))
            target_score_BT = score_BC.gather(1, target_BT)
            score_BC = without_items(score_BC, to_device(batch.known, device))
            self.num_samples += score_BC.numel()
        else:
            # targets, then negatives: a target is ranked against these and the other targets
            item_BN, counts_BN = self._negatives(batch, target)
            score_BC = self._finite(
                model.score_candidates(state, torch.cat((target_BT, item_BN), dim=1))
            )
            score_BC = score_BC.masked_fill(~torch.cat((is_target_BT, counts_BN), dim=1), ABSENT)
            target_score_BT = score_BC[:, : target_BT.shape[1]]
            self.num_samples += is_target_BT.sum()
        top = top_k(score_BC, self._k)
        if self._rule.kind == "full":
            rank_K = torch.arange(top.score_BK.shape[1], device=device)
            rank_BK = torch.where(top.score_BK == ABSENT, self._k, rank_K)
            self.best_rank_I.scatter_reduce_(
                0, top.candidate_BK.flatten(), rank_BK.flatten(), reduce="amin"
            )
        above_BT, tied_BT = target_ranks(top, target_score_BT.masked_fill(~is_target_BT, ABSENT))
        user_T = np.repeat(rows, target.lengths())
        self._batches.append((user_T, above_BT[is_target_BT].cpu(), tied_BT[is_target_BT].cpu()))

    def _negatives(self, batch: HeldOut, target: Histories) -> tuple[Tensor, Tensor]:
        """Items [B, N] that came with the dataset or are drawn by the rule; which of them count."""
        device = self._model.device
        if self._rule.kind == "fixed":
            assert batch.candidates is not None, "candidates are checked before ranking begins"
            item_BN, counts_BN = pad(to_device(batch.candidates, device))
        else:
            excluded = to_device(batch.known.union(target), device)
            user_index_B = torch.tensor(batch.user_index, dtype=torch.int64, device=device)
            item_BN, counts_BN, num_short = draw_negatives(
                self._rule, excluded, user_index_B, self._key
            )
            self.num_short += num_short
        if self._rule.kind == "nvidia":  # repeats were drawn too, by all who have items to draw
            self.num_samples += counts_BN.any(1).sum() * self._rule.num_negatives
        else:
            self.num_samples += counts_BN.sum()
        return item_BN, counts_BN

    def _finite(self, score_BC: Tensor) -> Tensor:
        """The scores as float32; TrainingError if any is not finite, for such cannot be ranked."""
        score_BC = score_BC.float()
        lowest, highest = torch.aminmax(score_BC)
        if not bool(torch.isfinite(lowest) & torch.isfinite(highest)):
            raise TrainingError(
                f"{self._model.name} gives scores that are not finite numbers (from "
                f"{lowest.item()} to {highest.item()}), which cannot be ranked; if training "
                "diverged, lower the learning rate"
            )
        return score_BC


def pad(histories: HistoryTensors) -> tuple[Tensor, Tensor]:
    """Items as int64 [B, T], T the longest row, item 0 behind short rows; and which are real."""
    length_B = histories.lengths()
    longest = int(length_B.max()) if len(histories) else 0
    is_item_BT = torch.arange(longest, device=histories.device) < length_B[:, None]
    item_BT = torch.zeros_like(is_item_BT, dtype=torch.int64)
    item_BT[is_item_BT] = histories.item_index.long()
    return item_BT, is_item_BT

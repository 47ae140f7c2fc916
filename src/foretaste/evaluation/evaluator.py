"""Metrics of a model on held-out items: every user counts once, ties by expectation.

Shape suffixes: B users, T targets per user, N negatives, C candidates (targets and negatives),
I items of the catalogue, K ranks of the longest list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste._util.keywords import assign_settings
from foretaste._util.signatures import with_keywords_of
from foretaste.errors import DatasetError, SettingError, TrainingError
from foretaste.evaluation.candidates import candidates_key, choose_users, draw_negatives
from foretaste.evaluation.config import (
    CandidateRule,
    EvaluationConfig,
    EvaluationOptions,
    metric_name,
)
from foretaste.evaluation.groups import activity_groups, history_groups, popularity_groups
from foretaste.evaluation.lists import ListMeasures
from foretaste.evaluation.metrics import TargetRanks, user_metrics
from foretaste.evaluation.ranking import (
    ABSENT,
    TopK,
    check_ranking_fits,
    mask_items_,
    scoring,
    state_of,
    target_ranks,
    to_device,
    top_k,
    user_batches,
    users_at_once,
)
from foretaste.evaluation.result import Evaluation, Group, Metric, mean_metrics
from foretaste.models.base import RecommenderModel
from foretaste.ops.limits import LIMITS
from foretaste.ops.precision_flags import float32_products
from foretaste.ops.spans import span

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut
    from foretaste.ops.histories import HistoryTensors


@with_keywords_of(EvaluationOptions, EvaluationConfig)
def evaluate(
    model: RecommenderModel,
    heldout: HeldOut,
    config: EvaluationConfig | None = None,
    *,
    coverage: bool = True,
    progress: Callable[[int, int], None] | None = None,
    ranking: Callable[..., Ranking] | None = None,
    **settings: Unpack[EvaluationOptions],
) -> Evaluation:
    """Return metrics of ``model`` on ``heldout``, computed on its device.

    Args:
        model: a model of the training items of ``heldout``, or of its whole catalogue. Items that
            it lacks stand behind all others, and are misses as targets.
        heldout: the users, their histories for the model, and the items to be found. Users of the
            training are answered by `user_state`, the others by `fold_in`.
        config: settings of the evaluation; settings given by name override them: ``candidates``,
            ``k``, ``evaluation_batch``, ``more``, ``history_lengths``.
        coverage: measure coverage and the share of lists with a new item under candidates full.
            They need every user's list, and the other metrics do not.
        progress: called after each batch with the number of users done and of all users. Begins
            again for each history length.
        ranking: makes the `Ranking`. A subclass may share the users out to several processes.

    Raises SettingError for settings that do not exist, and for history lengths if training saw
    every user. Raises DatasetError if nothing is held out, the model has another catalogue, or
    the part has no such candidates (``fixed``, ``new``). Raises TrainingError for scores that are
    not finite.
    """
    parts = {"config": EvaluationConfig}
    given = assign_settings("evaluate", {"config": config, **settings}, (), parts)
    config = given.get("config", EvaluationConfig())
    started = time.perf_counter()
    counted = _select_measured(model, heldout, config)
    new_users = _new_users(counted, config)
    lists, has_lists = None, config.rule.kind == "full"  # sampled candidates say nothing of lists
    coverage = coverage and has_lists
    if config.more:
        lists = ListMeasures(model, config.k, heldout.num_train_users, has_lists=has_lists)
    rank = partial(ranking or Ranking, model, config)
    ranker = rank(counted, lists, coverage)
    ranks = ranker.run(progress)
    # The clock ends here: metrics, groups and shorter histories are outside it.
    elapsed_s = time.perf_counter() - started
    per_user = user_metrics(ranks, config.k)
    groups: list[Group] = []
    if lists is not None:
        lists.gather(ranker.gather)
        groups += activity_groups(per_user, lists.history_lengths(), ranks.num_targets_U)
        groups += popularity_groups(ranks, counted, lists.item_groups, config.k)
        per_user |= lists.per_user()
    if config.history_lengths is not None:

        def rank_again(users: HeldOut) -> TargetRanks:
            return rank(users, None, False).run(progress)

        groups += history_groups(rank_again, new_users, config.history_lengths, config.k)
    if coverage:
        per_user |= ranker.new_items()
    is_known_U = ranker.known_U.cpu().numpy() > 0
    of_known: dict[str, Metric] = {}
    if is_known_U.any() and not is_known_U.all():
        values = {name: found[is_known_U] for name, found in per_user.items()}
        of_known = mean_metrics(values, ranks.num_targets_U[is_known_U])
    num_as_trained = 0
    if model.keeps_user_rows and counted.is_grown is not None:
        is_trained = counted.user_index < counted.num_train_users
        num_as_trained = int((is_trained & counted.is_grown).sum())
    return Evaluation(
        split=heldout.split,
        protocol=heldout.protocol,
        candidates=config.candidates,
        metrics=mean_metrics(per_user, ranks.num_targets_U)
        | (ranker.coverages() if coverage else {}),
        num_users=counted.num_users,
        num_users_without_target=heldout.num_users - counted.num_users,
        num_unseen_targets=counted.target.num_interactions - len(ranks.user_T),
        num_new_targets=int((ranks.item_T >= counted.num_train_items).sum()),
        num_short_candidate_lists=int(ranker.num_short),
        num_samples=int(ranker.num_samples),
        elapsed_s=elapsed_s,
        num_users_unknown=int((~is_known_U).sum()),
        num_users_as_trained=num_as_trained,
        of_known=of_known,
        user_index=counted.user_index,
        per_user=per_user,
        groups=tuple(groups),
        dataset_digest=heldout.dataset_digest,
    )


def _select_measured(
    model: RecommenderModel, heldout: HeldOut, config: EvaluationConfig
) -> HeldOut:
    """Return the users that metrics are means over; DatasetError if they cannot be measured."""
    measured = new_targets(heldout) if config.rule.kind == "new" else heldout
    # A user without a target would have 0 / 0 and make every mean nan. Such users are left out and
    # counted.
    counted = measured.rows(np.flatnonzero(measured.target.lengths()))
    _check(model, counted, config.rule)
    return counted.read_by(model.num_items)


def _new_users(counted: HeldOut, config: EvaluationConfig) -> HeldOut:
    """Return the users unseen in training; SettingError for history lengths without such users."""
    found = counted.rows(np.flatnonzero(counted.user_index >= counted.num_train_users))
    if config.history_lengths is not None and not found.num_users:
        raise SettingError(
            f"history_lengths are of users unseen in training, and the {counted.split} part "
            f"(protocol {counted.protocol}) has none; prepare the dataset with --protocol "
            "held-out-users"
        )
    return found


def validation_rows(heldout: HeldOut, limit: int = 10_000) -> NDArray[np.int64]:
    """Return at most ``limit`` rows of ``heldout`` with a target, by hash, for validation."""
    rows = np.flatnonzero(heldout.target.lengths())
    return rows[choose_users(heldout.user_index[rows], limit, heldout.seed)]


def new_targets(heldout: HeldOut) -> HeldOut:
    """Return the users with targets new to training; DatasetError if a list can have none."""
    found = replace(heldout, target=heldout.new_targets)
    if not found.target.within(heldout.num_items).num_interactions:
        raise no_new_targets(heldout.split)
    return found


def no_new_targets(split: str) -> DatasetError:
    """Return the error for candidates ``new`` and a part without any."""
    return DatasetError(
        f"candidates is new, and the {split} part has no item that training never saw and that has "
        "a feature; use full, or prepare the dataset with --protocol new-items and --features"
    )


def _check(model: RecommenderModel, heldout: HeldOut, rule: CandidateRule) -> None:
    if heldout.num_users == 0:
        raise DatasetError(
            f"the {heldout.split} part holds no user with a held-out item, so there is nothing to "
            "measure; prepare the dataset with more users or other filters"
        )
    if model.num_items not in (heldout.num_train_items, heldout.num_items):
        raise DatasetError(
            f"the model knows {model.num_items:,} items, this dataset's catalogue has "
            f"{heldout.num_items:,}: evaluate on the dataset the model was trained on"
        )
    if rule.kind == "fixed" and heldout.candidates is None:
        raise DatasetError(
            f"candidates is fixed, and none came with the {heldout.split} part; use full or "
            "sampled-99, or prepare the dataset with candidates of its own"
        )


class Ranking:
    """Ranks the held-out items of all users, batch by batch, on the model's device.

    Lists are made if ``lists`` or the ``coverage`` of candidates full is measured; `evaluate`
    explains the other arguments.
    """

    def __init__(
        self,
        model: RecommenderModel,
        config: EvaluationConfig,
        heldout: HeldOut,
        lists: ListMeasures | None,
        coverage: bool,
    ) -> None:
        rule, k, batch = config.rule, config.k[-1], config.evaluation_batch
        self._model = model
        self._heldout = heldout
        self._rule = rule
        self._k = k
        self._lengths = config.k
        self._key = candidates_key(heldout.seed, heldout.split)
        self._lists = lists
        self._coverage = coverage
        self._batches: list[Tensor] = []  # user, above, tied and item of each target
        # the best rank (from 0) of each item in any user's list, k if it is in none
        self.best_rank_I = torch.full((heldout.num_items,), k, device=model.device)
        # the best rank of an item that training never saw in each user's list, likewise
        self.first_new_U = torch.full((heldout.num_users,), k, device=model.device)
        # 1 for users whose history tells the model something
        self.known_U = torch.zeros(heldout.num_users, dtype=torch.int64, device=model.device)
        # pairs of a user and a candidate: targets and what was drawn, repeats too
        self.num_samples = torch.zeros((), dtype=torch.int64, device=model.device)
        # users with fewer negatives to draw from than asked for
        self.num_short = torch.zeros_like(self.num_samples)
        num_candidates = model.num_items
        self._at_once = users_at_once(num_candidates, model.device)
        self._other_I: Tensor | None = None
        self._num_ranked = model.num_items
        if rule.kind == "new":
            is_other_I = np.ones(model.num_items, dtype=bool)
            is_other_I[heldout.target.within(model.num_items).item_index] = False
            self._other_I = torch.from_numpy(is_other_I).to(model.device)
            self._num_ranked -= int(is_other_I.sum())
        elif rule.kind != "full":
            most_targets = int(heldout.target.lengths().max())
            fixed = heldout.candidates if rule.kind == "fixed" else None
            most_negatives = (
                rule.num_draws(heldout.num_items) if fixed is None else int(fixed.lengths().max())
            )
            num_candidates = most_targets + most_negatives
            self._at_once = max(1, LIMITS[model.device.type].candidate_scores // num_candidates)
        if batch is not None:
            check_ranking_fits(batch, heldout.num_users, num_candidates, model.device)
            self._at_once = batch

    def run(self, progress: Callable[[int, int], None] | None) -> TargetRanks:
        """Rank every user of ``heldout``; ``progress`` gets (users done, users in all)."""
        heldout, batches = self._heldout, self.batches()
        num_own, num_done = sum(own.stop - own.start for _, own in batches), 0
        with scoring(self._model):
            self.begin()
            for rows, own in batches:
                # Products use full float32, whatever the application's flags: coarser products make
                # ties, which change ranks.
                with span("evaluate"), float32_products(self._model.device):
                    self._rank(rows, own)
                num_done += own.stop - own.start
                if progress is not None:
                    # A process knows its progress on its own users, and shows that share of all
                    # users.
                    progress(heldout.num_users * num_done // num_own, heldout.num_users)
        if self._coverage:
            self.best_rank_I = self.minimum(self.best_rank_I)
            self.first_new_U = self.minimum(self.first_new_U)
        self.known_U = self.total(self.known_U)
        self.num_samples = self.total(self.num_samples)
        self.num_short = self.total(self.num_short)
        # A process without a batch of its own still takes part in the gathering, with no rows.
        found_T4 = torch.cat([torch.zeros(0, 4, dtype=torch.int64), *self._batches])
        user_T, above_T, tied_T, item_T = self.gather(found_T4).numpy().T
        return TargetRanks(
            user_T=user_T,
            above_T=above_T,
            tied_T=tied_T,
            item_T=item_T,
            num_targets_U=heldout.target.lengths(),
        )

    def new_items(self) -> dict[str, NDArray[np.float64]]:
        """Return a 1 per metric and user if the list has a new item; empty if no item is new."""
        lengths = self._lengths if self._heldout.has_new_items else ()
        first_U = self.first_new_U.cpu().numpy()
        return {metric_name("new_items", k): (first_U < k).astype(np.float64) for k in lengths}

    def coverages(self) -> dict[str, Metric]:
        """Return the share of the catalogue in any user's list, by metric."""
        best_I, found = self.best_rank_I.cpu().numpy(), {}
        for k in self._lengths:
            name, share = metric_name("coverage", k), float((best_I < k).mean())
            found[name] = Metric(name=name, value=share, low=None, high=None)
        return found

    def begin(self) -> None:
        """Called before the first batch, when the model begins to score."""

    def batches(self) -> list[tuple[NDArray[np.int64], slice]]:
        """Return rows of ``heldout`` to score at once, and those among them to rank here."""
        heldout = self._heldout
        whole = user_batches(heldout.user_index, heldout.num_train_users, self._at_once)
        return [(rows, slice(0, len(rows))) for rows in whole]

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes that rank."""
        return tensor

    def minimum(self, tensor: Tensor) -> Tensor:
        """Return the minimum of a tensor over all processes that rank."""
        return tensor

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes that rank."""
        return rows

    def _rank(self, rows: NDArray[np.int64], own: slice) -> None:
        """Rank the targets of the users ``rows[own]``, scored in one batch with the other rows."""
        model, device = self._model, self._model.device
        batch = self._heldout.rows(rows)
        # An item that the model lacks has no score. It stays a miss, because each target counts in
        # `num_targets_U`.
        target = batch.target.within(model.num_items)
        history = to_device(batch.history, device)
        asked = (batch.user_index, history, batch.num_train_users, batch.is_grown)
        state = state_of(model, *asked)
        own_B = torch.from_numpy(rows[own]).to(device)
        self.known_U[own_B] = state.has_history_B[own].long()
        if self._rule.kind in ("full", "new"):
            # float32 products differ in their last bits with the number of rows. So all rows of a
            # batch are scored by each process that has some of them, and then cut to its own.
            score_BC = self._finite(model.score_catalogue(state))[own]
            target_BT, is_target_BT = pad(to_device(target[own], device))
            target_score_BT = score_BC.gather(
                1, target_BT
            )  # copied, because the mask writes in place
            known = batch.known[own].within(model.num_items)
            score_BC = mask_items_(score_BC, to_device(known, device))
            if self._other_I is not None:
                score_BC.masked_fill_(self._other_I, ABSENT)
            self.num_samples += len(target_BT) * self._num_ranked
        else:
            # Columns are targets, then negatives: a target is ranked against the negatives and the
            # other targets.
            target_BT, is_target_BT = pad(to_device(target, device))
            item_BN, counts_BN = self._negatives(batch, own)
            item_BC = torch.cat((target_BT, item_BN), dim=1)
            has_item_BC = item_BC < model.num_items
            score_BC = model.score_candidates(state, item_BC.where(has_item_BC, 0))
            score_BC, is_target_BT = self._finite(score_BC)[own], is_target_BT[own]
            counts_BC = torch.cat((is_target_BT, counts_BN), dim=1) & has_item_BC[own]
            score_BC = score_BC.masked_fill(~counts_BC, ABSENT)
            target_score_BT = score_BC[:, : target_BT.shape[1]]
            self.num_samples += is_target_BT.sum()
        target_score_BT = target_score_BT.masked_fill(~is_target_BT, ABSENT)
        above_BT, tied_BT = target_ranks(score_BC, target_score_BT, self._k)
        user_T = torch.from_numpy(np.repeat(rows[own], target[own].lengths()))
        item_T = torch.from_numpy(target[own].item_index).long()
        # Boolean indexing and the copies to the host wait for the device: the syncs of a batch.
        found = (user_T, above_BT[is_target_BT].cpu(), tied_BT[is_target_BT].cpu(), item_T)
        self._batches.append(torch.stack(found, dim=1))
        has_lists = self._rule.kind == "full" and (self._coverage or self._lists is not None)
        top = top_k(score_BC, self._k) if has_lists else None
        if top is not None and self._coverage:
            self._note_ranks(top, own_B)
        if self._lists is not None:
            self._lists.add(rows[own], batch.history[own], top)

    def _note_ranks(self, top: TopK, own_B: Tensor) -> None:
        """Keep the best ranks of the items of some users' lists."""
        rank_K = torch.arange(top.score_BK.shape[1], device=own_B.device)
        # A place without an item has rank k, which is in no list.
        rank_BK = torch.where(top.score_BK == ABSENT, self._k, rank_K)
        is_new_BK = top.candidate_BK >= self._heldout.num_train_items
        if is_new_BK.shape[1]:
            self.first_new_U[own_B] = torch.where(is_new_BK, rank_BK, self._k).amin(1)
        # One best rank for each item gives the coverage of every list length.
        self.best_rank_I.scatter_reduce_(
            0, top.candidate_BK.flatten(), rank_BK.flatten(), reduce="amin"
        )

    def _negatives(self, batch: HeldOut, own: slice) -> tuple[Tensor, Tensor]:
        """Return items [B, N] that came with the dataset or are drawn by the rule.

        The second tensor says which of them count, for the rows ``own`` only.
        """
        device = self._model.device
        if self._rule.kind == "fixed":
            assert batch.candidates is not None, "candidates are checked before ranking begins"
            item_BN, counts_BN = pad(to_device(batch.candidates, device))
        else:
            target = batch.target.within(batch.num_items)
            excluded = to_device(batch.known.union(target), device)
            user_index_B = torch.tensor(batch.user_index, dtype=torch.int64, device=device)
            item_BN, counts_BN, is_short_B = draw_negatives(
                self._rule, excluded, user_index_B, self._key
            )
            self.num_short += is_short_B[own].sum()
        counts_BN = counts_BN[own]
        if self._rule.kind == "nvidia":  # repeats were drawn too, by all who have items to draw
            self.num_samples += counts_BN.any(1).sum() * self._rule.num_negatives
        else:
            self.num_samples += counts_BN.sum()
        return item_BN, counts_BN

    def _finite(self, score_BC: Tensor) -> Tensor:
        """Return the scores as float32; TrainingError if one is not finite: it has no rank."""
        score_BC = score_BC.float()
        # A finite sum shows that all scores are finite, in a third of the time of their extremes.
        # An infinite sum may also be an overflow, so then each score is checked.
        if not score_BC.sum().isfinite() and not score_BC.isfinite().all():  # sync
            lowest, highest = torch.stack(torch.aminmax(score_BC)).tolist()
            raise TrainingError(
                f"{self._model.name} gives scores that are not finite numbers (from "
                f"{lowest} to {highest}), which cannot be ranked; if training "
                "diverged, lower the learning rate"
            )
        return score_BC


def pad(histories: HistoryTensors) -> tuple[Tensor, Tensor]:
    """Return items, int64 [B, T], T the longest row, 0 behind short rows; and which are real."""
    length_B = histories.lengths()
    longest = int(length_B.max()) if len(histories) else 0  # sync
    is_item_BT = torch.arange(longest, device=histories.device) < length_B[:, None]
    item_BT = torch.zeros_like(is_item_BT, dtype=torch.int64)
    # True places are taken row by row, in the order of the entries.
    item_BT[is_item_BT] = histories.item_index.long()
    return item_BT, is_item_BT

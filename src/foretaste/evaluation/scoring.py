"""Scores of candidates as the model gives them, batch by batch, in plain fp32.

Shape suffixes: B users, C candidates per user, N negatives, T targets, I items of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foretaste.errors import TrainingError
from foretaste.evaluation.candidates import candidates_key, draw_negatives
from foretaste.evaluation.config import CandidateRule
from foretaste.evaluation.places import ABSENT
from foretaste.models.base import RecommenderModel, UserState
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut
    from foretaste.data.histories import Histories


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of B users' candidates, `ABSENT` where there is none, and of their targets."""

    score_BC: Tensor
    target_score_BT: Tensor
    is_target_BT: Tensor
    """False where a row has fewer targets than the batch's longest."""
    num_samples: Tensor
    """Pairs of a user and a candidate, int64 scalar: targets and what was drawn, repeats too."""
    num_short: Tensor
    """Users with fewer negatives to draw from than asked for, int64 scalar."""


@dataclass(frozen=True, eq=False)
class _Negatives:
    """Candidates beside the targets, and which of them count."""

    item_BN: Tensor
    counts_BN: Tensor
    num_drawn: Tensor
    num_short: Tensor


@contextmanager
def scoring(model: RecommenderModel) -> Iterator[None]:
    """Within: evaluation mode, no gradients, no autocast."""
    was_training = model.training
    if was_training:  # setting the mode, even to what it is, makes models forget what they cached
        model.eval()
    try:
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            yield
    finally:
        if was_training:
            model.train()


def score_full(model: RecommenderModel, state: UserState, heldout: HeldOut) -> Scored:
    """The whole catalogue (C = I), the users' known items `ABSENT`."""
    score_BI = _checked(model, model.score_catalogue(state))
    target_BT, is_target_BT = pad(to_device(heldout.target.within(model.num_items), model.device))
    target_score_BT = score_BI.gather(1, target_BT).masked_fill(~is_target_BT, ABSENT)
    known = to_device(heldout.known, model.device)
    absent = score_BI.new_tensor(ABSENT)
    score_BI = score_BI.index_put((known.row_index(), known.item_index.long()), absent)
    num_samples = torch.tensor(score_BI.numel(), device=model.device)
    num_short = torch.zeros_like(num_samples)
    return Scored(score_BI, target_score_BT, is_target_BT, num_samples, num_short)


def score_sampled(
    model: RecommenderModel,
    state: UserState,
    heldout: HeldOut,
    rule: CandidateRule,
    seed: int,
) -> Scored:
    """Each user's targets and negatives drawn by ``rule``."""
    target = heldout.target.within(model.num_items)
    excluded = to_device(heldout.known.union(target), model.device)
    user_index_B = torch.tensor(heldout.user_index, dtype=torch.int64, device=model.device)
    key = candidates_key(seed, heldout.split)
    item_BN, counts_BN, num_short = draw_negatives(rule, excluded, user_index_B, key)
    num_drawn = counts_BN.sum()
    if rule.kind == "nvidia":  # repeats were drawn too, by all who have anything to draw from
        num_drawn = counts_BN.any(1).sum() * rule.num_negatives
    return _score_against(
        model, state, target, _Negatives(item_BN, counts_BN, num_drawn, num_short)
    )


def score_fixed(model: RecommenderModel, state: UserState, heldout: HeldOut) -> Scored:
    """Each user's targets and the candidates that came with the dataset."""
    assert heldout.candidates is not None, "candidates are checked before ranking begins"
    item_BN, counts_BN = pad(to_device(heldout.candidates, model.device))
    num_given = counts_BN.sum()
    target = heldout.target.within(model.num_items)
    return _score_against(
        model, state, target, _Negatives(item_BN, counts_BN, num_given, torch.zeros_like(num_given))
    )


def _score_against(
    model: RecommenderModel, state: UserState, target: Histories, negatives: _Negatives
) -> Scored:
    """Targets (first T columns) and negatives; a target is ranked against these and the user's
    other targets."""
    target_BT, is_target_BT = pad(to_device(target, model.device))
    item_BC = torch.cat((target_BT, negatives.item_BN), dim=1)
    score_BC = _checked(model, model.score_candidates(state, item_BC))
    is_candidate_BC = torch.cat((is_target_BT, negatives.counts_BN), dim=1)
    score_BC = score_BC.masked_fill(~is_candidate_BC, ABSENT)
    return Scored(
        score_BC=score_BC,
        target_score_BT=score_BC[:, : target_BT.shape[1]],
        is_target_BT=is_target_BT,
        num_samples=is_target_BT.sum() + negatives.num_drawn,
        num_short=negatives.num_short,
    )


def to_device(histories: Histories, device: torch.device) -> HistoryTensors:
    """``histories`` as tensors on ``device``."""
    return HistoryTensors.from_numpy(
        histories.offsets, histories.item_index, histories.num_items, device
    )


def pad(histories: HistoryTensors) -> tuple[Tensor, Tensor]:
    """Items as int64 [B, T], T the longest row, item 0 behind short rows; and which are real."""
    length_B = histories.lengths()
    longest = int(length_B.max()) if len(histories) else 0
    is_item_BT = torch.arange(longest, device=histories.device) < length_B[:, None]
    item_BT = torch.zeros_like(is_item_BT, dtype=torch.int64)
    item_BT[is_item_BT] = histories.item_index.long()
    return item_BT, is_item_BT


def _checked(model: RecommenderModel, score_BC: Tensor) -> Tensor:
    """The scores as float32; TrainingError if any is not finite, for such cannot be ranked."""
    score_BC = score_BC.float()
    lowest, highest = torch.aminmax(score_BC)
    if not bool(torch.isfinite(lowest) & torch.isfinite(highest)):
        raise TrainingError(
            f"{model.name} gives scores that are not finite numbers (from {lowest.item()} to "
            f"{highest.item()}), which cannot be ranked; if training diverged, lower the "
            "learning rate"
        )
    return score_BC

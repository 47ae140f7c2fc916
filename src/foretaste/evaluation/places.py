"""Where targets come out among scored candidates, without sorting the candidates.

The longest list that is judged is short, so its places are found by selection; a target is then
placed by a binary search in them, and one at the list's last score by a count over all candidates.

Shape suffixes: B users, C candidates per user, P places of the longest list, T targets per user.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ABSENT = float("-inf")
"""The score of what is not a candidate: known items, repeats and padding."""


@dataclass(frozen=True, eq=False)
class TopList:
    """The highest scored candidates of B users, ordered by score, then candidate number."""

    score_BP: Tensor
    candidate_BP: Tensor
    """Column of the candidate, int64."""
    num_at_last_B: Tensor
    """How many of all candidates score as the last place does, int64."""


def top_list(score_BC: Tensor, num_places: int) -> TopList:
    """The first min(num_places, C) places; `ABSENT` candidates come last. Scores are never NaN."""
    num_places = min(num_places, score_BC.shape[1])
    # one place more tells which lists are cut among equals: only there are all candidates counted
    score_BN, candidate_BN = score_BC.topk(min(num_places + 1, score_BC.shape[1]))
    score_BP, candidate_BP = score_BN[:, :num_places], candidate_BN[:, :num_places]
    last_B1 = score_BP[:, -1:]
    at_last_BP = score_BP == last_B1
    num_at_last_B = at_last_BP.sum(1)
    cut_B = (score_BN[:, num_places:] == last_B1).any(1)
    if bool(cut_B.any()):
        equal_RC = score_BC[cut_B] == last_B1[cut_B]
        chosen = _lowest_columns(equal_RC, num_at_last_B[cut_B])
        candidate_BP[at_last_BP & cut_B[:, None]] = chosen
        num_at_last_B[cut_B] = equal_RC.sum(1)
    if bool((score_BP[:, 1:] == score_BP[:, :-1]).any()):
        candidate_BP, order_BP = candidate_BP.sort(dim=1)
        score_BP, order_BP = score_BP.gather(1, order_BP).sort(dim=1, descending=True, stable=True)
        candidate_BP = candidate_BP.gather(1, order_BP)
    return TopList(score_BP, candidate_BP, num_at_last_B)


def place_targets(top: TopList, target_score_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates above each target, and candidates tied with it (itself included), int64 [B, T].

    A target below the last place is given as many above as there are places, and one tied.
    """
    num_places = top.score_BP.shape[1]
    ascending_BP = top.score_BP.flip(1)
    num_lower_BT = torch.searchsorted(ascending_BP, target_score_BT.contiguous())
    num_up_to_BT = torch.searchsorted(ascending_BP, target_score_BT.contiguous(), right=True)
    at_last_BT = target_score_BT == top.score_BP[:, -1:]
    tied_BT = torch.where(at_last_BT, top.num_at_last_B[:, None], num_up_to_BT - num_lower_BT)
    return num_places - num_up_to_BT, tied_BT.clamp_(min=1)


def _lowest_columns(wanted_BC: Tensor, quota_B: Tensor) -> Tensor:
    """The first ``quota`` columns that are set in each row, row after row."""
    chosen_BC = wanted_BC & (wanted_BC.cumsum(1, dtype=torch.int32) <= quota_B[:, None])
    return chosen_BC.nonzero()[:, 1]

"""Ranking for evaluation and recommendation: known users or fold-in, scores, mask, top k.

Shape suffixes: B users, C candidates per user, I items of the catalogue, K ranks of the longest
list, T targets per user, N entries of all histories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste._util.memory import require_memory
from foretaste.models.base import RecommenderModel, UserState
from foretaste.models.memory import free_on
from foretaste.ops.histories import HistoryTensors

if TYPE_CHECKING:
    from foretaste.data.histories import Histories

ABSENT = float("-inf")
"""The score of what is not a candidate: known items, repeats and padding."""

_SCORE_BYTES = {"cpu": 64 * 2**20, "cuda": 512 * 2**20}
"""Memory for the scores of one batch of users; masks and selection take a few times that."""
_CACHE_BYTES = 8 * 2**20
"""On a CPU, scores of one batch that stay in the cache: ranking 3,706 items by a matrix
factorisation takes three quarters of the time. Below 4 MiB calls cost more than that saves."""
_MIN_USERS = 64
"""At once where their scores do not fit the cache: each batch reads all vectors of items."""
_MAX_USERS = 8192
_MANY = 64
"""Columns to select from which on it pays to select groups of columns first."""
_BYTES_PER_SCORE = 12
"""Of a batch's scores: float32, as they come, with known items out, and ordered."""


def check_ranking_fits(
    batch: int | None, num_users: int, num_candidates: int, device: torch.device, kept: int = 0
) -> None:
    """UnsupportedError where a batch cannot be ranked on a device, beside ``kept`` bytes.

    ``batch`` is the number of users ranked at once, None for that of `users_at_once`.
    """
    at_once = min(batch or users_at_once(num_candidates, device), num_users)
    require_memory(
        at_once * num_candidates * _BYTES_PER_SCORE,
        max(0, free_on(device) - kept),
        f"ranking {num_candidates:,} items for {at_once:,} users at once",
        "lower evaluation_batch, or leave it out" if batch else "give a smaller evaluation_batch",
    )


def users_at_once(num_candidates: int, device: torch.device) -> int:
    """Number of users whose scores fit the memory reserved for one batch, on a CPU its cache."""
    row_bytes = 4 * max(1, num_candidates)
    at_once = min(_MAX_USERS, _SCORE_BYTES.get(device.type, _SCORE_BYTES["cpu"]) // row_bytes)
    if device.type == "cpu":
        at_once = min(at_once, max(_MIN_USERS, _CACHE_BYTES // row_bytes))
    return max(1, at_once)


def user_batches(
    user_index: NDArray[np.integer], num_train_users: int, at_once: int
) -> Iterator[NDArray[np.int64]]:
    """Rows of ``user_index`` with users known from training, then rows with new ones."""
    is_known = user_index < num_train_users
    for rows in (np.flatnonzero(is_known), np.flatnonzero(~is_known)):
        for start in range(0, len(rows), at_once):
            yield rows[start : start + at_once]


def state_of(
    model: RecommenderModel,
    user_index: NDArray[np.integer],
    histories: HistoryTensors,
    num_train_users: int,
) -> UserState:
    """State of one batch of `user_batches`: of known users, or folded in from their histories."""
    if user_index[0] >= num_train_users:
        return model.fold_in(histories)
    user_index_B = torch.tensor(user_index, dtype=torch.int64, device=model.device)
    return model.user_state(user_index_B, histories)


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


def to_device(histories: Histories, device: torch.device) -> HistoryTensors:
    """``histories`` as tensors on ``device``."""
    return HistoryTensors.from_numpy(
        histories.offsets, histories.item_index, histories.num_items, device
    )


def without_items(score_BI: Tensor, histories: HistoryTensors) -> Tensor:
    """Scores of the catalogue, `ABSENT` for the items of each user's history."""
    entries = (histories.row_index(), histories.item_index.long())
    return score_BI.index_put(entries, score_BI.new_full((), ABSENT))


@dataclass(frozen=True, eq=False)
class TopK:
    """The highest scored candidates of B users, ordered by score, then candidate number."""

    score_BK: Tensor
    candidate_BK: Tensor
    """Column of the candidate, int64."""
    num_at_last_B: Tensor
    """Number of all candidates that score as the last of the list does, int64."""


def top_k(score_BC: Tensor, k: int) -> TopK:
    """The first min(k, C) candidates; `ABSENT` ones come last. Scores are never NaN."""
    k = min(k, score_BC.shape[1])
    # one more than k shows which lists are cut among equals: only there are all candidates counted
    score_BN, candidate_BN = _largest(score_BC, min(k + 1, score_BC.shape[1]))
    score_BK, candidate_BK = score_BN[:, :k], candidate_BN[:, :k]
    last_B1 = score_BK[:, -1:]
    at_last_BK = score_BK == last_B1
    num_at_last_B = at_last_BK.sum(1)
    cut_B = (score_BN[:, k:] == last_B1).any(1)
    if bool(cut_B.any()):  # sync
        # of the candidates that score as the last place does, those of the lowest columns stay
        equal_RC = score_BC[cut_B] == last_B1[cut_B]
        room_R1 = num_at_last_B[cut_B][:, None]
        stays_RC = equal_RC & (equal_RC.cumsum(1, dtype=torch.int32) <= room_R1)
        candidate_BK[at_last_BK & cut_B[:, None]] = stays_RC.nonzero()[:, 1]
        num_at_last_B[cut_B] = equal_RC.sum(1)
    if bool((score_BK[:, 1:] == score_BK[:, :-1]).any()):  # sync; the sort is for lists with ties
        candidate_BK, order_BK = candidate_BK.sort(dim=1)
        score_BK, order_BK = score_BK.gather(1, order_BK).sort(dim=1, descending=True, stable=True)
        candidate_BK = candidate_BK.gather(1, order_BK)
    return TopK(score_BK, candidate_BK, num_at_last_B)


def _largest(score_BC: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """As `Tensor.topk`. Of many, first the ``num`` best of groups of columns by their maximum, then
    the best of their members: of 5,000 columns 100 are found in half the time."""
    num_columns = score_BC.shape[1]
    # As many groups as members of the chosen ones. On a GPU it was not measured.
    size = math.isqrt(num_columns // num) if num >= _MANY else 1
    if size < 2 or score_BC.device.type != "cpu":
        return score_BC.topk(num)
    # group g has the columns g, g + G, g + 2 G and so on: their maxima are taken row by row
    num_groups = num_columns // size
    grouped = size * num_groups
    groups_BsG = score_BC[:, :grouped].view(len(score_BC), size, num_groups)
    best_BN = groups_BsG.amax(1).topk(num, sorted=False).indices
    first_s = torch.arange(0, grouped, num_groups, device=score_BC.device)
    column_BM = (best_BN[:, None, :] + first_s[:, None]).flatten(1)
    rest_R = torch.arange(grouped, num_columns, device=score_BC.device)
    column_BM = torch.cat((column_BM, rest_R.expand(len(score_BC), -1)), dim=1)
    score_BN, place_BN = score_BC.gather(1, column_BM).topk(num)
    return score_BN, column_BM.gather(1, place_BN)


def target_ranks(top: TopK, target_score_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates above each target, and candidates tied with it (itself included), int64 [B, T].

    The list is searched, not all candidates: a target that is not in it is given as many above as
    the list is long, and one tied.
    """
    ascending_BK = top.score_BK.flip(1)
    num_lower_BT = torch.searchsorted(ascending_BK, target_score_BT.contiguous())
    num_up_to_BT = torch.searchsorted(ascending_BK, target_score_BT.contiguous(), right=True)
    at_last_BT = target_score_BT == top.score_BK[:, -1:]
    tied_BT = torch.where(at_last_BT, top.num_at_last_B[:, None], num_up_to_BT - num_lower_BT)
    return top.score_BK.shape[1] - num_up_to_BT, tied_BT.clamp_(min=1)

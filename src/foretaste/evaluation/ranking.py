"""Ranking for evaluation and recommendation: known users or fold-in, scores, mask, top k.

Shape suffixes: B users, C candidates per user, I items of the catalogue, K ranks of the longest
list, T targets per user, N entries of all histories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste._util.memory import require_memory
from foretaste.models.base import RecommenderModel, UserState
from foretaste.models.memory import free_on
from foretaste.ops.forks import refuse_gpu_after_fork
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS

if TYPE_CHECKING:
    from foretaste.data.histories import Histories

ABSENT = float("-inf")
"""The score of columns that are no candidates: known items, repeats and padding."""

_MIN_USERS = 64
"""Users at once if their scores do not fit the cache; each batch reads all item vectors."""
_MAX_USERS = 8192
_MANY = 64
"""Columns above which selecting groups of columns first is faster."""
_MOST_IN_GROUP = 16
"""Columns in a group whose maximum is compared with targets; 32 take four times as long."""
_BYTES_PER_SCORE = 12
"""Memory of a batch for each score: float32, and twice as much again if a model combines several
or many candidates tie."""


def check_ranking_fits(
    batch: int | None, num_users: int, num_candidates: int, device: torch.device, kept: int = 0
) -> None:
    """Raise UnsupportedError if a batch cannot be ranked on a device, beside ``kept`` bytes.

    ``batch`` is the number of users ranked at once, None for the number of `users_at_once`.
    """
    at_once = min(batch or users_at_once(num_candidates, device), num_users)
    require_memory(
        at_once * num_candidates * _BYTES_PER_SCORE,
        max(0, free_on(device) - kept),
        f"ranking {num_candidates:,} items for {at_once:,} users at once",
        "lower evaluation_batch, or leave it out" if batch else "give a smaller evaluation_batch",
    )


def users_at_once(num_candidates: int, device: torch.device) -> int:
    """Return the number of users whose scores fit one batch's memory, on a CPU its cache."""
    row_bytes = 4 * max(1, num_candidates)
    limits = LIMITS[device.type]
    in_cache = max(_MIN_USERS, limits.cached_score_bytes // row_bytes)
    return max(1, min(_MAX_USERS, limits.score_bytes // row_bytes, in_cache))


def user_batches(
    user_index: NDArray[np.integer], num_train_users: int, at_once: int
) -> Iterator[NDArray[np.int64]]:
    """Yield rows of ``user_index`` with users known from training, then rows with new ones.

    No batch has both, because `state_of` takes either `user_state` or `fold_in`.
    """
    is_known = user_index < num_train_users
    for rows in (np.flatnonzero(is_known), np.flatnonzero(~is_known)):
        for start in range(0, len(rows), at_once):
            yield rows[start : start + at_once]


def state_of(
    model: RecommenderModel,
    user_index: NDArray[np.integer],
    histories: HistoryTensors,
    num_train_users: int,
    is_grown: NDArray[np.bool_] | None = None,
) -> UserState:
    """Return the state of a batch of `user_batches`: known users, or folded in from histories.

    ``is_grown`` is as in `HeldOut`.
    """
    if user_index[0] >= num_train_users:
        return model.fold_in(histories)
    user_index_B = torch.tensor(user_index, dtype=torch.int64, device=model.device)
    is_grown_B = None if is_grown is None else torch.tensor(is_grown, device=model.device)
    return model.user_state(user_index_B, histories, is_grown_B)


@contextmanager
def scoring(model: RecommenderModel) -> Iterator[None]:
    """Set evaluation mode, without gradients and autocast, while the block runs."""
    was_training = model.training
    if was_training:  # setting the mode, even to what it is, clears the caches of models
        model.eval()
    try:
        with torch.no_grad(), _without_autocast(model.device.type):
            yield
    finally:
        if was_training:
            model.train()


def _without_autocast(device_type: str) -> AbstractContextManager[object]:
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()  # a tenth of a list's time


def to_device(histories: Histories, device: torch.device) -> HistoryTensors:
    """``histories`` as tensors on ``device``; UnsupportedError if a fork forbids the GPU."""
    if device.type == "cuda":
        refuse_gpu_after_fork()
    return HistoryTensors.from_numpy(
        histories.offsets, histories.item_index, histories.num_items, device, histories.position
    )


def mask_items_(score_BI: Tensor, histories: HistoryTensors) -> Tensor:
    """Return the scores, `ABSENT` for items of the histories, masked in place if contiguous."""
    # `view` needs one block of memory: other scores are copied, so callers use the result.
    score_BI = score_BI.contiguous()
    # Places in the flat scores take a third of the time of rows and columns.
    place_N = histories.row_index() * score_BI.shape[1] + histories.item_index
    score_BI.view(-1).index_fill_(0, place_N, ABSENT)
    return score_BI


@dataclass(frozen=True, eq=False)
class TopK:
    """The highest scored candidates of B users, ordered by score, then candidate number."""

    score_BK: Tensor
    candidate_BK: Tensor
    """Column of the candidate, int64."""


def top_k(score_BC: Tensor, k: int) -> TopK:
    """Return the first min(k, C) candidates; `ABSENT` ones come last. Scores are never NaN."""
    k = min(k, score_BC.shape[1])
    # `Tensor.topk` returns equal scores in no order, so a list would differ by device and batch.
    # One more than k shows which lists are cut among equal scores. Only there are all candidates
    # counted.
    score_BN, candidate_BN = _largest(score_BC, min(k + 1, score_BC.shape[1]))
    score_BK, candidate_BK = score_BN[:, :k], candidate_BN[:, :k]
    if not bool((score_BN[:, 1:] == score_BN[:, :-1]).any()):  # sync; the rest is for ties
        return TopK(score_BK, candidate_BK)
    last_B1 = score_BK[:, -1:]
    at_last_BK = score_BK == last_B1
    cut_B = (score_BN[:, k:] == last_B1).any(1)
    if bool(cut_B.any()):  # sync
        # among candidates with the score of the last place, the lowest columns stay
        equal_RC = score_BC[cut_B] == last_B1[cut_B]
        room_R1 = at_last_BK[cut_B].sum(1, keepdim=True)
        stays_RC = equal_RC & (equal_RC.cumsum(1, dtype=torch.int32) <= room_R1)
        # Both sides are in the order of rows, and a row has a place for each column that stays.
        candidate_BK[at_last_BK & cut_B[:, None]] = stays_RC.nonzero()[:, 1]
    # Sort by column, then stably by score: equal scores stay in the order of columns.
    candidate_BK, order_BK = candidate_BK.sort(dim=1)
    score_BK, order_BK = score_BK.gather(1, order_BK).sort(dim=1, descending=True, stable=True)
    candidate_BK = candidate_BK.gather(1, order_BK)
    return TopK(score_BK, candidate_BK)


def _largest(score_BC: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Return what `Tensor.topk` returns. Among many columns, first find the ``num`` groups with the
    highest maxima, then the best of their members: 100 of 5,000 columns are found in half the
    time."""
    num_columns = score_BC.shape[1]
    # There are as many groups as members of the chosen groups. A GPU was not measured.
    size = math.isqrt(num_columns // num) if num >= _MANY else 1
    if size < 2 or score_BC.device.type != "cpu":
        return score_BC.topk(num)
    # Group g has the columns g, g + G, g + 2 G and so on: their maxima are taken row by row.
    num_groups = num_columns // size
    grouped = size * num_groups
    groups_BsG = score_BC[:, :grouped].view(len(score_BC), size, num_groups)
    # The best `num` columns lie in the `num` groups of the highest maxima: every group that is
    # left out has `num` groups before it, each with a column at least as high as all of its own.
    best_BN = groups_BsG.amax(1).topk(num, sorted=False).indices
    first_s = torch.arange(0, grouped, num_groups, device=score_BC.device)
    column_BM = (best_BN[:, None, :] + first_s[:, None]).flatten(1)
    # The columns behind the last whole row of groups always take part.
    rest_R = torch.arange(grouped, num_columns, device=score_BC.device)
    column_BM = torch.cat((column_BM, rest_R.expand(len(score_BC), -1)), dim=1)
    score_BN, place_BN = score_BC.gather(1, column_BM).topk(num)
    return score_BN, column_BM.gather(1, place_BN)


def target_ranks(score_BC: Tensor, target_score_BT: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return candidates above each target and, itself included, tied with it: int64 [B, T].

    The numbers are exact if fewer than ``k`` are above. Other targets, and those that are `ABSENT`,
    get min(k, C) above and one tied. Scores are never NaN.

    No list is made. First the maxima of groups of columns are compared: a target that k groups
    exceed is out of the list. Then columns are counted one by one, in those groups alone whose
    maximum reaches the lowest target that is left. So fifty targets cost three to four times as
    much as one.
    """
    (num_rows, num_columns), num_targets = score_BC.shape, target_score_BT.shape[1]
    k = min(k, num_columns)
    above_BT = torch.full_like(target_score_BT, k, dtype=torch.int64)
    tied_BT = torch.ones_like(above_BT)
    if not target_score_BT.numel():
        return above_BT, tied_BT
    # Group g has the columns g, g + G, g + 2 G and so on: their maxima are taken row by row. With
    # groups of sqrt(C / k) columns, the C / size groups are as many as the k * size members of k
    # groups: both passes cost the same.
    size = min(max(math.isqrt(num_columns // k), 1), _MOST_IN_GROUP)
    num_groups = num_columns // size
    groups_BsG = score_BC[:, : size * num_groups].view(num_rows, size, num_groups)
    maximum_BG = groups_BsG.amax(1)
    descending_BT, target_BT = target_score_BT.sort(dim=1, descending=True)
    # If k groups have a better candidate each, a target and all below it are out of the list.
    num_left_B = _num_left(maximum_BG, descending_BT, k)
    # Rows with the most targets left come first, so those with a t-th target are a prefix: the
    # passes below work on slices.
    num_left_R, row_R = num_left_B.sort(descending=True)
    rows_of_T = (num_left_R[:, None] > torch.arange(num_targets, device=row_R.device)).sum(0)
    rows_with = [num for num in rows_of_T.tolist() if num]  # sync: rows of 1 target or more, 2, ...
    if not rows_with:
        return above_BT, tied_BT
    num_left_R, row_R = num_left_R[: rows_with[0]], row_R[: rows_with[0]]
    # A group whose maximum is below the lowest target has no column above or tied.
    lowest_R = descending_BT[row_R, num_left_R - 1]
    group_RG, is_group_RG = _compact_columns(maximum_BG[row_R] >= lowest_R[:, None])
    score_RsG = groups_BsG[row_R[:, None], :, group_RG].transpose(1, 2).contiguous()
    score_RsG.masked_fill_(~is_group_RG[:, None], ABSENT)
    score_RM = torch.cat((score_RsG.flatten(1), score_BC[row_R, size * num_groups :]), dim=1)
    # Comparisons write 0 and 1 as floats into reused memory: see `_num_left`.
    counted_RM = torch.empty_like(score_RM)
    for place, num in enumerate(rows_with):
        row_r, score_rM, counted_rM = row_R[:num], score_RM[:num], counted_RM[:num]
        target_score_r1 = descending_BT[row_r, place][:, None]
        above_r = torch.gt(score_rM, target_score_r1, out=counted_rM).sum(1).long()
        tied_r = torch.eq(score_rM, target_score_r1, out=counted_rM).sum(1).long()
        is_listed_r, target_r = above_r < k, target_BT[row_r, place]
        above_BT[row_r, target_r] = torch.where(is_listed_r, above_r, k)
        tied_BT[row_r, target_r] = torch.where(is_listed_r, tied_r.clamp_(min=1), 1)
    return above_BT, tied_BT


def _num_left(maximum_BG: Tensor, descending_BT: Tensor, k: int) -> Tensor:
    """Return the number of targets of each row that fewer than ``k`` groups exceed, int64 [B].

    The number is found by bisection, so fifty targets take six passes over the groups.
    """
    num_targets = descending_BT.shape[1]
    most_B = (descending_BT > ABSENT).sum(1)
    least_B = torch.zeros_like(most_B)
    # Comparisons into bools, and the sums of these, take a CPU five times as long as into floats.
    exceeds_BG = torch.empty_like(maximum_BG)
    for _ in range(num_targets.bit_length()):
        middle_B = (least_B + most_B) // 2
        score_B1 = descending_BT.gather(1, middle_B.clamp(max=num_targets - 1)[:, None])
        num_above_B = torch.gt(maximum_BG, score_B1, out=exceeds_BG).sum(1)
        is_left_B = (num_above_B < k) & (middle_B < most_B)
        least_B = torch.where(is_left_B, middle_B + 1, least_B)
        most_B = torch.where(is_left_B, most_B, middle_B)
    return least_B


def _compact_columns(is_chosen_RG: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's True columns, padded with 0 to the longest, and which are real."""
    num_R = is_chosen_RG.sum(1)
    is_real_RW = torch.arange(int(num_R.max()), device=num_R.device) < num_R[:, None]  # sync
    column_RW = torch.zeros_like(is_real_RW, dtype=torch.int64)
    column_RW[is_real_RW] = is_chosen_RG.nonzero()[:, 1]
    return column_RW, is_real_RW

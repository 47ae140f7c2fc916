"""Comparison of a program's lists with its model's.

Shape suffixes: B users, I items of the catalogue, K ranks of a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import ABSENT, mask_items_, scoring, state_of, to_device, top_k
from foretaste.export.formats import Call, Inputs
from foretaste.export.program import NO_ITEM, ListProgram
from foretaste.models.base import RecommenderModel

NEAR = 1e-5
"""Difference of near-ties, as a share of the range of the user's scores."""

_USERS_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Numbers of a program's lists by their agreement with the model's lists."""

    equal: int
    """Lists with the same item at every rank."""
    near_ties: int
    """Lists with other items at some ranks, all of them near-ties of the model's items."""
    different: int
    """All other lists."""

    @property
    def num_lists(self) -> int:
        return self.equal + self.near_ties + self.different

    def __str__(self) -> str:
        text = f"{self.equal:,} of {self.num_lists:,} lists are equal"
        return f"{text}, {self.near_ties:,} differ among near-ties, {self.different:,} elsewhere"


def compare_lists(
    model: RecommenderModel,
    program: ListProgram,
    call: Call,
    histories: Histories,
    user_index: NDArray[np.int64],
    progress: Callable[[int, int], None] | None = None,
) -> Parity:
    """Compare the lists of users, and of three odd histories: none, one and all items.

    The first user is one batch, the others are in larger batches. Every second history is reversed,
    for the program and for the model.
    """
    histories, user_index = _add_odd_rows(histories, user_index)
    counts, num_rows = np.zeros(3, dtype=np.int64), len(histories)
    if progress is not None:
        progress(0, num_rows)
    # A program may be right for one size of batch only, so one user comes alone.
    for start in [0, *range(1, num_rows, _USERS_AT_ONCE)]:
        rows = slice(start, min(start + _USERS_AT_ONCE, num_rows) if start else 1)
        own, users = histories[rows], user_index[rows]
        found_BK, score_BK = map(torch.from_numpy, call(inputs_of(program, own, users)))
        score_BI = _own_scores(model, own, users if program.takes_users else None)
        counts += _kinds(score_BI, found_BK, score_BK)
        if progress is not None:
            progress(rows.stop, num_rows)
    equal, near_ties, different = counts.tolist()
    return Parity(equal=equal, near_ties=near_ties, different=different)


def inputs_of(program: ListProgram, histories: Histories, user_index: NDArray[np.int64]) -> Inputs:
    """Return the inputs of a program by name, for users with these histories."""
    items = histories.item_index[histories.oldest_first()].astype(np.int64)
    values = (items, histories.lengths(), user_index)
    return dict(zip(program.inputs, values, strict=False))


def _add_odd_rows(
    histories: Histories, user_index: NDArray[np.int64]
) -> tuple[Histories, NDArray[np.int64]]:
    """Return the users, then the first user three times: with no item, with one, with all items.
    The histories of every second row are reversed."""
    num_items = histories.num_items
    items = np.concatenate([histories.item_index, [0], np.arange(num_items)]).astype(np.int32)
    lengths = np.concatenate([histories.lengths(), [0, 1, num_items]])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    users = np.concatenate([user_index, np.repeat(user_index[:1], 3)])
    position = np.arange(len(items), dtype=np.int32)
    if histories.position is not None:
        position[: len(histories.position)] = histories.position
    found = Histories(offsets=offsets, item_index=items, num_items=num_items, position=position)
    return replace(found, position=np.where(found.row_index() % 2, -position, position)), users


def _own_scores(
    model: RecommenderModel, histories: Histories, user_index: NDArray[np.int64] | None
) -> Tensor:
    """Return scores [B, I] of known users by index or of new users; history items are `ABSENT`."""
    tensors = to_device(histories, model.device)
    with scoring(model):
        if user_index is None:
            state = model.fold_in(tensors)
        else:
            state = state_of(model, user_index, tensors, model.num_users)
        return mask_items_(model.score_catalogue(state), tensors)


def _kinds(score_BI: Tensor, found_BK: Tensor, found_score_BK: Tensor) -> NDArray[np.int64]:
    """Return the numbers of lists that are equal, that differ in near-ties only, and others."""
    own = top_k(score_BI, found_BK.shape[1])
    own_BK = torch.where(own.score_BK == ABSENT, NO_ITEM, own.candidate_BK)
    # Items of the history are no part of the range of scores: NaN, then neither end of it.
    candidate_BI = score_BI.masked_fill(score_BI == ABSENT, float("nan"))
    highest_B1 = candidate_BI.nan_to_num(float("-inf")).amax(1, keepdim=True)
    lowest_B1 = candidate_BI.nan_to_num(float("inf")).amin(1, keepdim=True)
    near_B1 = NEAR * (highest_B1 - lowest_B1).clamp(min=0.0)
    is_item_BK = found_BK != NO_ITEM
    own_score_BK = score_BI.gather(1, found_BK.clamp(min=0))
    # A near-tie at a rank has two sides: the model scores the program's item almost as its own one,
    # and the program gives its item almost the score that the model gives it.
    is_near_BK = (own_score_BK - own.score_BK).abs() <= near_B1
    is_near_BK &= (own_score_BK - found_score_BK).abs() <= near_B1
    is_near_BK = torch.where(is_item_BK, is_near_BK, own_BK == NO_ITEM)
    is_fine_B, is_equal_B = is_near_BK.all(1), (own_BK == found_BK).all(1)
    kinds = (is_fine_B & is_equal_B, is_fine_B & ~is_equal_B, ~is_fine_B)
    return np.array([int(kind.sum()) for kind in kinds])

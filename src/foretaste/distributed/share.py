"""The part of a rank: its users with their rows of the tables, and its part of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.distributed.collectives import Ranks
from foretaste.evaluation.ranking import user_batches
from foretaste.models.base import IterativeModel, RecommenderModel
from foretaste.models.baselines.ials import IALS, BothSides
from foretaste.models.batches import Batches
from foretaste.models.neumf.batches import InteractionBatches
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.autoencoder import HistoryAutoencoder
from foretaste.ops.histories import HistoryTensors, offsets_of
from foretaste.training.auto import TrainingPlan

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut


def batches_of(
    ranks: Ranks, model: IterativeModel, histories: HistoryTensors, plan: TrainingPlan
) -> Batches:
    """A rank's parts of the batches of a plan; the whole batches are those of one process.

    The ``histories`` are of its users: of all users where a model shares out the users of a batch.
    """
    if isinstance(model, NeuMF):
        return _interaction_batches(ranks, model, histories, plan)
    if isinstance(model, IALS):
        num_interactions = torch.tensor(histories.item_index.numel(), device=histories.device)
        ranks.sum_(num_interactions)
        whole = _rows_of_all(ranks, histories, _own_items(ranks, model))
        return BothSides(histories, whole.transposed(), int(num_interactions))
    model.part_of = ranks.part_of
    if isinstance(model, HistoryAutoencoder):
        num_items = model.num_items
        model.items_of_batch = lambda owned_U: ranks.union(owned_U, num_items, at_most=num_items)
    return model.make_batches(histories, batch_size=plan.batch_size, seed=plan.seed)


def _interaction_batches(
    ranks: Ranks, model: NeuMF, histories: HistoryTensors, plan: TrainingPlan
) -> InteractionBatches:
    num_here = torch.tensor([histories.item_index.numel()], device=histories.device)
    nums = torch.cat(ranks.gathered(num_here)).tolist()

    def rows_before(num_rows: Tensor) -> Tensor:
        return torch.stack(ranks.gathered(num_rows))[: ranks.rank].sum(0)

    return InteractionBatches(
        histories,
        model.config,
        plan.batch_size,
        plan.seed,
        first_interaction=sum(nums[: ranks.rank]),
        num_interactions=sum(nums),
        rows_before=rows_before,
    )


def _own_items(ranks: Ranks, model: IALS) -> range:
    """Consecutive items that a rank solves for; each rank's have about as many users."""
    total_I = model.item_count_I.double().cumsum(0)
    part_R = torch.arange(1, ranks.size, device=model.device).double() / ranks.size
    inner = torch.searchsorted(total_I, total_I[-1] * part_R, right=True)
    bounds = [0, *inner.tolist(), model.num_items]
    return range(bounds[ranks.rank], bounds[ranks.rank + 1])


def _rows_of_all(ranks: Ranks, histories: HistoryTensors, items: range) -> HistoryTensors:
    """The users of all ranks with some items alone, which are numbered from the first of them."""
    num_here = torch.tensor([len(histories)], device=histories.device)
    nums = torch.cat(ranks.gathered(num_here)).tolist()
    row_N = histories.row_index() + sum(nums[: ranks.rank])
    pair_N2 = torch.stack([row_N.int(), histories.item_index], 1)
    found = []
    for _, piece_N2 in ranks.gathered_in_pieces(pair_N2):
        item_N = piece_N2[:, 1]
        found.append(piece_N2[(item_N >= items.start) & (item_N < items.stop)])
    row_N, item_N = torch.cat(found).T
    row_N, order_N = torch.sort(row_N, stable=True)
    item_index = item_N[order_N] - items.start
    return HistoryTensors(offsets_of(row_N, sum(nums)), item_index, len(items))


def own_batches(
    ranks: Ranks,
    model: RecommenderModel,
    heldout: HeldOut,
    at_once: int,
) -> Iterator[tuple[NDArray[np.int64], slice]]:
    """The batches of `user_batches` that are for a rank, and its users in each.

    Every rank takes whole batches, the same as a single process, so that sums within them, and so
    scores, are the same to the last bit. Batches are shared out in contiguous parts. But where
    the model is a part, one of known users is for each rank that has rows of any of them.
    """
    user_index, num_train_users = heldout.user_index, heldout.num_train_users
    batches: list[Any] = list(user_batches(user_index, num_train_users, at_once))
    if model.is_part:
        num_known = sum(user_index[rows[0]] < num_train_users for rows in batches)
        for rows in batches[:num_known]:
            bounds = (model.users.start, model.users.stop)
            start, stop = np.searchsorted(user_index[rows], bounds).tolist()
            if start < stop:
                yield rows, slice(start, stop)
        batches = batches[num_known:]
    for number in ranks.part_of(len(batches)):
        yield batches[number], slice(0, len(batches[number]))

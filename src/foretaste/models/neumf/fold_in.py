"""New users for NeuMF: fit a row of its user tables to a history, everything else frozen.

The row found has the least training loss over the history's items and a few fixed negatives of
each, together with minus the log-density of a Gaussian prior, which has the trained rows' mean and
variance and a weight (`resolved_prior_weight` of a config, unless validation chose another).
Negatives are chosen by a hash of the history and the position, so that an answer depends on the
history alone and not on who else is asked about in the same request. Steps are in units of the
trained rows' deviation. For cosines that is a tenth of the one for dot products. Every user's
loss is a mean of its own and Adam moves each number by its own gradient, so all users of a request
are fitted at once.

Shape suffixes: B users, N interactions, K candidates (the item, then its negatives), F factors,
E embedding width, H width of the tower's first layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from foretaste.models.parts import WHOLE, Parts
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.negatives import Complement
from foretaste.ops.neumf_loss import chunked
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Objective, Samples, with_users
from foretaste.ops.random import Purpose, bounded, hash_words, stream_key
from foretaste.ops.segments import gather
from foretaste.ops.torch_internals import Adam

NUM_STEPS = 30
LEARNING_RATE = 0.5

_SAMPLES_AT_ONCE = 5 << 16
_ROWS_AT_ONCE = 1 << 14
_MOST_BITS = 62

Project = Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]]
"""Rows of the user tables to the users' sides of the product and of the tower."""


@dataclass(frozen=True, eq=False)
class UserPrior:
    """Mean row [1, width] of trained users, the deviation from it, table by table, and a weight."""

    means: list[Tensor]
    deviations: list[Tensor]
    weight: float
    """Factor of the log-density, beside the losses of a history."""

    @classmethod
    def of(
        cls,
        user_tables: Sequence[Tensor],
        num_users: int | None = None,
        weight: float = 1.0,
        parts: Parts = WHOLE,
    ) -> UserPrior:
        """The mean and deviation of each table's rows.

        Of ``num_users`` rows the tables may have a part; the bits are the same for any parts.
        """
        means, deviations = [], []
        for table_UD in (table.detach() for table in user_tables):
            num_rows = len(table_UD) if num_users is None else num_users
            mean_D = _mean_of_rows(table_UD, num_rows, parts)
            square_D = _mean_of_rows(table_UD, num_rows, parts, squared_from=mean_D)
            means.append(mean_D.to(table_UD.dtype)[None])
            deviations.append(square_D.mean().sqrt_().clamp_(min=1e-6).to(table_UD.dtype))
        return cls(means, deviations, weight)

    def rows(self, standardized: Sequence[Tensor]) -> list[Tensor]:
        """Rows of the tables, [B, width], given in deviations from the mean."""
        return [
            mean + deviation * row
            for mean, deviation, row in zip(self.means, self.deviations, standardized, strict=True)
        ]


def _mean_of_rows(
    table_UD: Tensor, num_rows: int, parts: Parts, squared_from: Tensor | None = None
) -> Tensor:
    """The mean of all ``num_rows`` rows, or of their squared distances: float64 [D].

    Added up as integers, multiples of a power of two so small that they do not overflow: exactly,
    and so the same in any order and for any parts.
    """

    def terms() -> Iterator[Tensor]:
        for rows in torch.split(table_UD, _ROWS_AT_ONCE):
            yield rows.double() if squared_from is None else (rows - squared_from).square()

    largest = torch.zeros((), dtype=torch.float64, device=table_UD.device)
    for term in terms():
        if term.numel():
            largest = torch.maximum(largest, term.abs().amax())
    total = num_rows * parts.largest(largest).item()
    # total < 2**e by frexp, and scale = 2**(62 - e): no sum of int64 exceeds 2**62.
    scale = math.ldexp(1.0, _MOST_BITS - math.frexp(total)[1])
    sum_D = torch.zeros(table_UD.shape[1], dtype=torch.int64, device=table_UD.device)
    for term in terms():
        sum_D += (term * scale).round_().long().sum(0)
    return parts.total(sum_D).double() / (scale * num_rows)


def fit_users(
    prior: UserPrior,
    project: Project,
    frozen: InteractionInputs,
    histories: HistoryTensors,
    objective: Objective,
    num_negatives: int,
) -> tuple[Tensor, ...]:
    """A row of each user table, [B, width], fitted to the histories.

    Args:
        prior: of the trained rows; its mean is the start.
        project: differentiable by the rows.
        frozen: items and weights of the loss, fixed; its user sides are replaced.
        histories: the new users' items.
        objective: the loss of training.
        num_negatives: of each item. Long histories draw fewer, so that a history has at most
            327,680 samples; each then weighs more. At least one is drawn.
    """
    parts = []
    for start, stop in _shares(histories, max(1, _SAMPLES_AT_ONCE // (1 + num_negatives))):
        part = histories[start:stop]
        # Fewer are drawn where one history alone is too long for all.
        fitting = max(1, _SAMPLES_AT_ONCE // max(1, len(part.item_index)) - 1)
        num_drawn = min(num_negatives, fitting)
        parts.append(_fit(prior, project, frozen, part, objective, num_negatives, num_drawn))
    if not parts:
        return tuple(mean[:0] for mean in prior.means)
    return tuple(torch.cat(rows) for rows in zip(*parts, strict=True))


def _fit(
    prior: UserPrior,
    project: Project,
    frozen: InteractionInputs,
    histories: HistoryTensors,
    objective: Objective,
    num_negatives: int,
    num_drawn: int,
) -> tuple[Tensor, ...]:
    standardized = [mean.new_zeros(len(histories), mean.shape[1]) for mean in prior.means]
    if histories.item_index.numel() == 0:
        return tuple(prior.rows(standardized))
    row_index_N = histories.row_index()
    objective = replace(objective, negative_shift=math.log(num_negatives / num_drawn))
    samples = replace(_samples(histories, row_index_N, num_drawn), objective=objective)
    num_losses_B1 = histories.lengths().clamp(min=1)[:, None]
    if objective.name == "bce":
        num_losses_B1 = num_losses_B1 * (1 + num_negatives)
        samples.weight_BK[:, 1:] *= num_negatives / num_drawn
        samples.weight_BK.mul_((1 + num_drawn) / (1 + num_negatives))
    strength_B1 = 0.5 * prior.weight / num_losses_B1
    fitted = [row.requires_grad_() for row in standardized if row.numel()]
    optimizer = Adam(fitted, lr=LEARNING_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, NUM_STEPS)
    for _ in range(NUM_STEPS):
        with torch.enable_grad():
            product_NF, tower_NH = gather(row_index_N, *project(prior.rows(standardized)))
            inputs = with_users(frozen, product_NF, tower_NH)
            loss = chunked.loss(inputs, samples)
            for row in fitted:
                loss = loss + (row.square() * strength_B1).sum()
        gradients = torch.autograd.grad(loss, fitted)
        for row, gradient in zip(fitted, gradients, strict=True):
            row.grad = gradient
        optimizer.step()
        schedule.step()
    return tuple(row.detach() for row in prior.rows(standardized))


def _samples(histories: HistoryTensors, row_index_N: Tensor, num_negatives: int) -> Samples:
    """Each item with its negatives; a user's weights add up to one."""
    lengths_B = histories.lengths()
    num_negatives_B = histories.num_items - lengths_B
    position_N = torch.arange(len(row_index_N), device=row_index_N.device)
    position_N -= histories.offsets[row_index_N]
    draw_NK = position_N[:, None] * num_negatives + torch.arange(
        num_negatives, device=row_index_N.device
    )
    # A key for each history, of its items alone: the sum of their hashes.
    item_key = stream_key(0, Purpose.FOLD_IN_NEGATIVES)
    item_word_N = hash_words(item_key, histories.item_index.long())
    key_B = torch.zeros(len(histories), dtype=torch.int64, device=item_word_N.device)
    key_B.index_add_(0, row_index_N, item_word_N)
    word_NK = hash_words(key_B[row_index_N, None], draw_NK)
    rank_NK = bounded(word_NK, num_negatives_B[row_index_N, None])
    negative_NK = Complement.of(histories).select(row_index_N[:, None], rank_NK)
    item_index_NK = torch.cat(
        [histories.item_index[:, None], negative_NK.clamp_(max=histories.num_items - 1)], dim=1
    )
    label_K = torch.zeros(1, 1 + num_negatives, device=row_index_N.device)
    label_K[0, 0] = 1.0
    weight_BK = torch.ones(len(histories), 1 + num_negatives, device=row_index_N.device)
    weight_BK[:, 1:] *= (num_negatives_B > 0)[:, None]
    weight_BK /= (weight_BK.sum(1) * lengths_B).clamp_(min=1.0)[:, None]
    return Samples(item_index_NK, label_K, weight_BK.index_select(0, row_index_N))


def _shares(histories: HistoryTensors, interactions_at_once: int) -> Iterator[tuple[int, int]]:
    """Consecutive users whose interactions together stay within the memory for them."""
    ends = histories.offsets[1:].cpu()
    start = 0
    while start < len(ends):
        first = int(histories.offsets[start])
        stop = int(torch.searchsorted(ends, first + interactions_at_once, right=True))
        stop = max(stop, start + 1)
        yield start, stop
        start = stop

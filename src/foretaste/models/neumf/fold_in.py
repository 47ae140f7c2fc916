"""New users for NeuMF: fit a row of its user tables to a history, everything else frozen.

The row minimises the training loss over the history's items and a few fixed negatives of each, less
the weighted log-density of a Gaussian prior. The prior has the mean and variance of the trained
rows. Its weight is `resolved_prior_weight` of a config, unless validation chose another.

Negatives are chosen by a hash of the history and the position. So an answer depends on the history
alone, and not on who else is asked about in the same request. Steps are in units of the trained
rows' deviation. The deviation for cosines is a tenth of the deviation for dot products. Every
user's loss is a mean of its own, and Adam moves each number by its own gradient, so all users of a
request are fitted at once.

Shape suffixes: B users, N interactions, K candidates (the item, then its negatives), F factors,
E embedding width, H width of the tower's first layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.negatives import Complement
from foretaste.ops.neumf_loss import chunked
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Objective, Samples, with_users
from foretaste.ops.random import Purpose, bounded_integers, hash_words, stream_key
from foretaste.ops.segments import sum_bags

# On one thread 20 steps take 18 ms for one user of ml-1m, and 8 ms each for 50 at once. 30 steps
# were no better on ml-1m, lastfm and steam; 10 steps lost 0.004 NDCG@100 with gmf on ml-1m.
NUM_STEPS = 20
LEARNING_RATE = 0.5
BETA1, BETA2 = 0.7, 0.9
_EPSILON = 1e-8

SAMPLES_AT_ONCE = 5 << 16
_ROWS_AT_ONCE = 1 << 14
_MOST_BITS = 62

Project = Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]]
"""Rows of the user tables to the users' sides of the product and of the tower."""

ProjectBack = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, Tensor]]
"""The rows and the gradients by both sides to the gradients by the rows."""


@dataclass(frozen=True, eq=False)
class UserPrior:
    """The mean row [1, width] of each table's trained users and the deviation; and a weight."""

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
        parts: Shards = SINGLE,
    ) -> UserPrior:
        """Return the mean and deviation of each table's rows.

        The tables may have a part of the ``num_users`` rows; the bits are the same for any parts.
        """
        means, deviations = [], []
        for table_UD in (table.detach() for table in user_tables):
            num_rows = len(table_UD) if num_users is None else num_users
            mean_D = _mean_of_rows(table_UD, num_rows, parts)
            square_D = _mean_of_rows(table_UD, num_rows, parts, squared_from=mean_D)
            means.append(mean_D.to(table_UD.dtype)[None])
            # One number for a table: the root of the mean of its columns' variances.
            deviations.append(square_D.mean().sqrt_().clamp_(min=1e-6).to(table_UD.dtype))
        return cls(means, deviations, weight)

    def rows(self, standardized: Sequence[Tensor]) -> list[Tensor]:
        """Return rows of the tables, [B, width], given in deviations from the mean."""
        return [
            mean + deviation * row
            for mean, deviation, row in zip(self.means, self.deviations, standardized, strict=True)
        ]


def _mean_of_rows(
    table_UD: Tensor, num_rows: int, parts: Shards, squared_from: Tensor | None = None
) -> Tensor:
    """Return the mean of all ``num_rows`` rows, or of their squared distances: float64 [D].

    The terms are rounded to multiples of a power of two and added up as integers. That is exact,
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


@dataclass(frozen=True, kw_only=True)
class UserFit:
    """A fit of rows to the histories of new users, with the rest of the model frozen."""

    prior: UserPrior
    """The prior from the trained rows; its mean is the start."""

    project: Project
    """The model's projection of rows."""

    project_back: ProjectBack
    """The backward of `project`."""

    frozen: InteractionInputs
    """Items and weights of the loss; its user sides are replaced."""

    objective: Objective
    """The loss of training."""

    num_negatives: int
    """Negatives of each item. Long histories draw fewer, so that a history has at most 327,680
    samples; each then weighs more. At least one is drawn."""

    @torch.no_grad()
    def rows(self, histories: HistoryTensors) -> tuple[Tensor, ...]:
        """Return a row of each user table, [B, width], fitted to the histories."""
        prior, num_negatives, parts = self.prior, self.num_negatives, []
        for start, stop in _shares(histories, max(1, SAMPLES_AT_ONCE // (1 + num_negatives))):
            part = histories[start:stop]
            # Fewer are drawn if one history alone is too long for all.
            fitting = max(1, SAMPLES_AT_ONCE // max(1, len(part.item_index)) - 1)
            turns = sampled_turns(part, self.objective, num_negatives, min(num_negatives, fitting))
            num_losses = 1 + num_negatives if self.objective.name == "bce" else 1
            strength_B1 = prior.weight / (num_losses * part.lengths().clamp(min=1)[:, None])
            parts.append(self._rows(part, strength_B1, turns))
        if not parts:
            return tuple(mean[:0] for mean in prior.means)
        return tuple(torch.cat(rows) for rows in zip(*parts, strict=True))

    def _rows(
        self, histories: HistoryTensors, strength_B1: Tensor, turns: Sequence[Samples]
    ) -> tuple[Tensor, ...]:
        """Return rows by Adam, written out: autograd takes several times as long for one user."""
        standardized = [mean.new_zeros(len(histories), mean.shape[1]) for mean in self.prior.means]
        if histories.item_index.numel() == 0:
            return tuple(self.prior.rows(standardized))
        row_index_N = histories.row_index()
        position_N = torch.arange(len(row_index_N), device=row_index_N.device)
        moments = [(torch.zeros_like(row), torch.zeros_like(row)) for row in standardized]
        for step in range(NUM_STEPS):
            rows = self.prior.rows(standardized)
            sides = self.project(rows)
            of_interactions = (side.index_select(0, row_index_N) for side in sides)
            inputs = with_users(self.frozen, *of_interactions)
            _, found = chunked.value_and_gradients(inputs, turns[step % len(turns)])
            by_sides = [
                # Without the factor that `logit_adjustment` has added to the items
                # (`with_item_scores`).
                sum_bags(by_interaction, position_N, histories.offsets)[:, : side.shape[1]]
                for by_interaction, side in zip(
                    (found.user_product_BF, found.user_tower_BH), sides, strict=True
                )
            ]
            # Adam (Kingma & Ba 2015, algorithm 1) with a rate that falls linearly to 0, and the
            # correction of the first moment in it.
            rate = LEARNING_RATE * (1.0 - step / NUM_STEPS) / (1.0 - BETA1 ** (step + 1))
            for row, by_row, deviation, (mean, square) in zip(
                standardized,
                self.project_back(rows, by_sides),
                self.prior.deviations,
                moments,
                strict=True,
            ):
                # The row is in deviations from the mean: the chain rule gives the first term, and
                # the Gaussian prior -log N = row² / 2 the second.
                gradient = by_row * deviation + row * strength_B1
                mean.lerp_(gradient, 1.0 - BETA1)
                square.lerp_(gradient.square(), 1.0 - BETA2)
                root = square.div(1.0 - BETA2 ** (step + 1)).sqrt_().add_(_EPSILON)
                row.addcdiv_(mean, root, value=-rate)
        return tuple(self.prior.rows(standardized))


def sampled_turns(
    histories: HistoryTensors, objective: Objective, num_negatives: int, num_drawn: int
) -> list[Samples]:
    """Return each item with some of the negatives drawn for it, which the steps take in turn.

    With bce a step takes a quarter of them: sums over a history even out the noise of a quarter.
    Softmax takes all, because it compares an item with all of them and was worse with a quarter. A
    user's weights add up to one.
    """
    is_bce = objective.name == "bce"
    num_at_once = max(1, num_drawn // 4) if is_bce else num_drawn
    num_turns = num_drawn // num_at_once
    lengths_B, row_index_N = histories.lengths(), histories.row_index()
    num_others_B = histories.num_items - lengths_B
    position_N = torch.arange(len(row_index_N), device=row_index_N.device)
    position_N -= histories.offsets[row_index_N]
    draw_K = torch.arange(num_turns * num_at_once, device=row_index_N.device)
    draw_NK = position_N[:, None] * num_drawn + draw_K
    # A key for each history, of its items alone: the sum of their hashes.
    item_key = stream_key(0, Purpose.FOLD_IN_NEGATIVES)
    item_word_N = hash_words(item_key, histories.item_index.long())
    key_B = torch.zeros(len(histories), dtype=torch.int64, device=item_word_N.device)
    # int64 sums wrap around, and are the same in any order of the items.
    key_B.index_add_(0, row_index_N, item_word_N)
    word_NK = hash_words(key_B[row_index_N, None], draw_NK)
    rank_NK = bounded_integers(word_NK, num_others_B[row_index_N, None])
    negative_NK = Complement.of(histories).select(row_index_N[:, None], rank_NK)
    negative_NK.clamp_(max=histories.num_items - 1)
    label_K = torch.zeros(1, 1 + num_at_once, device=row_index_N.device)
    label_K[0, 0] = 1.0
    weight_BK = torch.ones(len(histories), 1 + num_at_once, device=row_index_N.device)
    weight_BK[:, 1:] *= (num_others_B > 0)[:, None]
    weight_BK /= (weight_BK.sum(1) * lengths_B).clamp_(min=1.0)[:, None]
    stands_for = num_negatives / num_at_once
    if is_bce:
        weight_BK[:, 1:] *= stands_for
        # 1 for the item and N / a for each of a negatives come to 1 + N: a user's weights still add
        # up to one.
        weight_BK *= (1 + num_at_once) / (1 + num_negatives)
    objective = replace(objective, negative_shift=math.log(stands_for))
    weight_NK = weight_BK.index_select(0, row_index_N)
    return [
        Samples(torch.cat([histories.item_index[:, None], part], 1), label_K, weight_NK, objective)
        for part in torch.split(negative_NK, num_at_once, dim=1)
    ]


def _shares(histories: HistoryTensors, interactions_at_once: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive users whose interactions together stay within the memory for them."""
    ends = histories.offsets[1:].cpu()
    start = 0
    while start < len(ends):
        first = int(histories.offsets[start])
        stop = int(torch.searchsorted(ends, first + interactions_at_once, right=True))
        stop = max(stop, start + 1)
        yield start, stop
        start = stop

"""SASRec (Kang & McAuley 2018, arXiv 1808.09781): self-attention over the newest items.

Shape suffixes: B users, R rows of a piece or batch, W places of the longest row, H heads, D width,
S steps, I items, K candidates per user.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from foretaste.errors import TrainingError
from foretaste.models.base import Implementation, NeuralModel, UserState
from foretaste.models.batches import Batches, power_of_two
from foretaste.models.config import ModelConfig, Setting, TrainingSize
from foretaste.models.layers import Layer
from foretaste.models.parts import SINGLE, Shards
from foretaste.models.sasrec.batches import (
    StepBatch,
    StepBatches,
    newest_items,
    padded_entries,
)
from foretaste.models.sasrec.config import LONG_HISTORIES, SASRecConfig
from foretaste.models.sasrec.features import ItemValues
from foretaste.models.scorer import BaseScorer, OrderedScorer
from foretaste.models.softmax import catalogue_loss
from foretaste.ops import softmax_loss
from foretaste.ops.dense import Activation, candidate_products, dense, linear
from foretaste.ops.dropout import keep_mask, keep_rate
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.random import (
    Purpose,
    fill_normal_,
    fill_uniform_,
    from_row,
    stream_key,
    stream_keys,
)

_FEW_PLACES = 1 << 10
"""Places of a piece that may be mostly pads: another piece would take as long."""

_START_STD = 0.02

_NEW_ITEM_FACTOR = 1.5
"""Factor on the vector of a new item, which has no own part and would be too short to be listed.

Validation parts of Beauty chose it: 1, 1.25, 1.5 and 2 put a new item into .002, .043, .303 and
.841 of the lists of 20, and NDCG@10 of known items is .0745, .0745, .0745 and .0723."""

_VECTORS_OF_BLOCK, _VECTORS_OF_PLACE = 20, 6
"""Most vectors of a place that a step takes, for each block and outside the blocks. A step holds 13
and 7 at a time; the allocator cannot use all of what is freed."""

_CHUNKS = 4
"""Most chunks of logits that the loss takes; it holds fewer at a time."""

_LIBRARY_BYTES = 64 << 20
"""Memory that the first step of a process takes, whether it is large or small."""

Drop = Callable[[Tensor], Tensor]


def _nothing(value: Tensor) -> Tensor:
    return value


class SASRec(NeuralModel):
    """Reads the newest items of a history in order; its last place is the state of the user.

    A score is the product of that vector with the item's, the one that is also read.
    """

    name = "sasrec"
    config_class: ClassVar[type[ModelConfig]] = SASRecConfig
    item_rows = ("item_table",)
    value_rows = ("values.value_table",)

    def __init__(
        self, config: SASRecConfig, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config.resolved(num_items), num_users, num_items, users)
        width = self.config.factors
        self.item_table = nn.Parameter(torch.empty(num_items, width))
        self.place_table = nn.Parameter(torch.empty(self.config.max_length, width))
        self.blocks = nn.ModuleList(_Block(width, self.config.heads) for _ in range(config.blocks))
        self.last_norm = nn.LayerNorm(width)
        self.values: ItemValues | None = None
        """The feature values of items, if there are features."""
        self.num_trained_items = num_items
        """Items that training has. They stand first, and new items behind them."""
        self._vectors_ID: Tensor | None = None
        self.longest_row: Tensor
        # Later places learned nothing, so no answer uses them.
        self.register_buffer("longest_row", torch.zeros((), dtype=torch.int64))

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: SASRecConfig) -> dict[str, Setting]:
        batch_size = power_of_two(size.num_interactions // 64, 32, 2048)
        is_long = size.num_interactions >= LONG_HISTORIES * size.num_users
        epochs = 25 if is_long else 40  # an epoch has all steps, and long histories have many
        shape: dict[str, Setting] = {"epochs": epochs, "batch_size": batch_size, "eval_every": 5}
        adam = {"learning_rate": 0.003, "beta1": 0.9, "beta2": 0.98}
        if size.constant_rate:
            return shape | adam | {"patience": 5}
        return shape | adam | {"patience": 0, "learning_rate_schedule": "cosine"}

    def take_features(self, features: HistoryTensors) -> None:
        """Learn a vector of each feature value too, from the items that have it."""
        self.values = ItemValues(features, self.config.factors, self.item_table.device)

    def clear_cache(self) -> None:
        self._vectors_ID = None

    def count_items(self, histories: HistoryTensors, parts: Shards = SINGLE) -> None:
        super().count_items(histories, parts)
        longest = histories.lengths().max() - 1 if len(histories) else self.longest_row
        self.longest_row.copy_(longest.clamp(min=1, max=self.config.max_length))

    def make_batches(
        self,
        histories: HistoryTensors,
        *,
        batch_size: int,
        seed: int,
        padded: bool = False,
        parts: Shards = SINGLE,
    ) -> StepBatches:
        batches = StepBatches(histories, self.config.max_length, batch_size, seed, parts=parts)
        if not batches.num_samples:
            raise TrainingError(
                "no user has two items or more in the training part, so nothing comes next to learn"
            )
        if self.values is not None:
            self.num_trained_items = int(histories.item_index.max()) + 1  # sync: once
        return batches

    def step_bytes(self, batches: Batches) -> int:
        assert isinstance(batches, StepBatches)
        num_places, num_steps = batches.most()
        vectors = _VECTORS_OF_BLOCK * self.config.blocks + _VECTORS_OF_PLACE
        scored_ID: Tensor = self.item_table
        if self.config.sampled_softmax is not None:
            scored_ID = scored_ID[: num_steps + self.config.sampled_softmax]
        num_bytes: int = num_places * vectors * self.config.factors * self.item_table.itemsize
        num_bytes += _CHUNKS * softmax_loss.logits_bytes(num_steps, scored_ID)
        # The vectors and the gradients of the look-up and of the scores.
        return num_bytes + 4 * self.item_table.nbytes + _LIBRARY_BYTES

    def waits_for_device(self, num_samples: int, implementation: Implementation) -> bool:
        """Return True, because every batch has another shape."""
        return True

    def kernel_dtypes(self) -> dict[str, torch.dtype]:
        return {"softmax_loss": self.compute_dtype or self.item_table.dtype}

    def reset_parameters(self, seed: int) -> None:
        """Fill tables by N(0, 0.02²), weights Glorot-uniformly and biases with 0.

        Norms begin as the identity, and with features an item's own part begins at 0.
        """
        for number, (name, parameter) in enumerate(self.named_parameters()):
            key = stream_key(seed, Purpose.INITIALISE, number)
            if name == "item_table" and self.values is not None:
                nn.init.zeros_(parameter)  # as for new items, whose own part never learns
            elif name.endswith("_table"):
                fill_normal_(parameter, key, _START_STD)
            elif parameter.dim() == 2:
                fill_uniform_(parameter, key, math.sqrt(6.0 / sum(parameter.shape)))
            else:
                nn.init.constant_(parameter, float(name.endswith("norm.weight")))

    def forward(self, batch: StepBatch) -> Tensor:
        """Return the mean of ``-log softmax`` of the next item, over the steps of the batch."""
        vectors_ID, dtype = self._vectors(), self.compute_dtype if self.training else None
        drop = _Dropout(batch, self.config.dropout) if self.training else _nothing
        hidden_RWD = drop(self._embedded(batch.item_index_RW, vectors_ID))
        for block in self.blocks:
            hidden_RWD = block(hidden_RWD, drop, dtype)
        # The loss takes no pads. The gradient of `hidden[index]` would differ from run to run.
        step_SD = self.last_norm(hidden_RWD.flatten(0, 1).index_select(0, batch.step_index_S))
        # New items are never the right answer, and as wrong answers they would learn to be wrong.
        num_items = self.num_trained_items
        # A history of one target for each step.
        offsets = torch.arange(len(batch.target_S) + 1, device=self.device)
        targets = HistoryTensors(offsets, batch.target_S, num_items)
        no_bias_I = vectors_ID.new_zeros(num_items)
        return catalogue_loss(self, batch, step_SD, vectors_ID[:num_items], no_bias_I, targets)

    def _vectors(self) -> Tensor:
        """Return the vector of each item: its own and, with features, the mean of its values'."""
        if self.values is None:
            return self.item_table
        weight: float = self.config.feature_weight
        return self.item_table.add(self.values(), alpha=weight)

    def _embedded(self, item_index_RW: Tensor, vectors_ID: Tensor) -> Tensor:
        """Add the vectors of items and of their places; place 0 is the oldest item's."""
        item_RWD = nn.functional.embedding(item_index_RW, vectors_ID)
        # As published, times the root of the width: after six epochs of Beauty NDCG@10 was .037 on
        # the validation part, and .027 without.
        item_RWD = item_RWD * math.sqrt(self.config.factors)
        return item_RWD + self.place_table[: item_index_RW.shape[1]]

    @torch.no_grad()
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        most, vectors_ID = int(self.longest_row), self.item_vectors()  # sync
        newest_N, num_B = newest_items(histories, most), histories.lengths().clamp(max=most)
        if len(histories) == 1 and len(newest_N):
            return (self.last_places(newest_N[None].long(), None, vectors_ID),)
        start_B = num_B.cumsum(0) - num_B
        state_BD = self.item_table.new_zeros(len(num_B), self.config.factors)
        for row_R, width in _pieces(num_B):
            num_R = num_B[row_R]
            item_index_RW = newest_N[padded_entries(start_B[row_R], num_R, width)].long()
            state_BD[row_R] = self.last_places(item_index_RW, num_R - 1, vectors_ID)
        return (state_BD,)

    def last_places(
        self, item_index_RW: Tensor, last_R: Tensor | None, vectors_ID: Tensor
    ) -> Tensor:
        """Return the vectors [R, D] of rows' last places; items behind them change nothing.

        Rows without pads need no ``last_R``.
        """
        hidden_RWD = self._embedded(item_index_RW, vectors_ID)
        *blocks, last = self.blocks
        for block in blocks:
            hidden_RWD = block(hidden_RWD)
        assert isinstance(last, _Block)
        vector_RD: Tensor = self.last_norm(last.at_last(hidden_RWD, last_R))
        return vector_RD

    @torch.no_grad()
    def item_vectors(self) -> Tensor:
        if self.values is None or self.training:
            return self._vectors()
        if self._vectors_ID is None:
            is_new_I1 = (self.item_count_I == 0)[:, None]
            vectors_ID = self._vectors()
            self._vectors_ID = torch.where(is_new_I1, _NEW_ITEM_FACTOR * vectors_ID, vectors_ID)
        return self._vectors_ID

    def index_vectors(self) -> Tensor:
        return self.item_vectors()

    def scorer(self, *, known_users: bool) -> BaseScorer:
        return _LastPlaceScorer(self)

    def _score_catalogue(self, state: UserState) -> Tensor:
        return linear(self.user_vectors(state), self.item_vectors())

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return candidate_products(self.user_vectors(state), self.item_vectors(), item_index_BK)


class _LastPlaceScorer(OrderedScorer):
    """Rows of one length for all users, the longest that training had."""

    def __init__(self, model: SASRec) -> None:
        super().__init__()
        self.model = model
        self.max_length = int(model.longest_row)
        self.vectors_ID: Tensor
        # A program has the sums of own parts and values, not the parts.
        self.register_buffer("vectors_ID", model.item_vectors().detach())

    def forward(self, item_index_BT: Tensor, length_B: Tensor) -> Tensor:
        # Users without an item are read at their first pad: popularity answers them.
        last_B = length_B.clamp(min=1) - 1
        return linear(
            self.model.last_places(item_index_BT, last_B, self.vectors_ID), self.vectors_ID
        )


class _Block(nn.Module):
    """Causal attention, then two layers at each place, both on normalised input and added to it.

    Neither the gates of LiGR nor GELU nor 200 updates of warm-up gained clearly:
    HR@10 on the same users changed by -.0033 (-.0117 to +.0051) on ml-1m with gates, on Beauty by
    +.0020 (-.0005 to +.0045), +.0002 (-.0019 to +.0023) and +.0004 (-.0021 to +.0028).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        # The layer makes queries, keys and values. A key's bias would change no attention: its
        # gradient is 0 but for rounding, which Adam would turn into steps.
        self.attention_input = Layer(width, 3 * width, bias=False)
        self.attention_output = Layer(width, width)
        self.inner_norm = nn.LayerNorm(width)
        self.inner = Layer(width, width)
        self.inner_output = Layer(width, width)

    def forward(
        self, hidden_RWD: Tensor, drop: Drop = _nothing, dtype: torch.dtype | None = None
    ) -> Tensor:
        inputs = _dense(self.attention_norm(hidden_RWD), self.attention_input, dtype)
        if inputs.device.type == "cpu":
            inputs = inputs.to(hidden_RWD.dtype)  # bfloat16 takes three to ten times as long
        query, key, value = map(self._by_head, inputs.chunk(3, dim=-1))
        return self._add(hidden_RWD, causal_attention(query, key, value), drop, dtype)

    def at_last(self, hidden_RWD: Tensor, last_R: Tensor | None) -> Tensor:
        """Return the output [R, D] at the last place of each row: ``last_R`` if there are pads."""
        normed_RWD, width = self.attention_norm(hidden_RWD), hidden_RWD.shape[-1]
        last: tuple[slice | Tensor, int | Tensor] = slice(None), -1
        is_read_R11W = None
        if last_R is not None:
            # not `len`, which an export would fix
            last = torch.arange(last_R.shape[0], device=last_R.device), last_R
            place_W = torch.arange(hidden_RWD.shape[1], device=last_R.device)
            is_read_R11W = (place_W <= last_R[:, None])[:, None, None]
        query = _dense(normed_RWD[last][:, None], self.attention_input, outputs=slice(width))
        both = _dense(normed_RWD, self.attention_input, outputs=slice(width, None))
        query, key, value = map(self._by_head, (query, *both.chunk(2, dim=-1)))
        attended = scaled_dot_product_attention(query, key, value, attn_mask=is_read_R11W)
        return self._add(hidden_RWD[last][:, None], attended)[:, 0]

    def _by_head(self, part_RWD: Tensor) -> Tensor:
        num_rows, num_places, width = part_RWD.shape
        return part_RWD.view(num_rows, num_places, self.heads, width // self.heads).transpose(1, 2)

    def _add(
        self,
        hidden: Tensor,
        attended: Tensor,
        drop: Drop = _nothing,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Add what the attention gives, then what the two layers give."""
        attended = attended.transpose(1, 2).flatten(2)
        hidden = hidden + drop(_dense(attended, self.attention_output, dtype))
        inner = _dense(self.inner_norm(hidden), self.inner, dtype, "relu")
        return hidden + drop(_dense(inner, self.inner_output, dtype))


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend from each place to the places up to it: [R, H, W, D / H].

    On CUDA, PyTorch's fused forms add up the gradients of queries by atomics, in an order that
    varies. Training takes the plain form there, so that equal trainings give equal bytes.
    """
    if query.device.type != "cuda" or not query.requires_grad:
        return scaled_dot_product_attention(query, key, value, is_causal=True)
    return plain_causal_attention(query, key, value)


def plain_causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute `causal_attention` by two products and a softmax."""
    match_RHWW = (query @ key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
    is_later_WW = torch.ones(match_RHWW.shape[-2:], dtype=torch.bool, device=query.device).triu_(1)
    share_RHWW = match_RHWW.masked_fill(is_later_WW, -torch.inf).softmax(-1)
    return share_RHWW.to(value.dtype) @ value


class _Dropout:
    """Dropout of one layer after another.

    A mask follows from the update, the layer, the row of the whole batch and the place in the row,
    so pads and ranks change no mask.
    """

    def __init__(self, batch: StepBatch, rate: float) -> None:
        self.batch, self.rate = batch, rate
        self.num_layers = 0

    def __call__(self, value_RWD: Tensor) -> Tensor:
        if self.rate == 0.0 or not len(value_RWD):
            return value_RWD
        key = stream_keys(self.batch.dropout_key, Purpose.DROPOUT, self.num_layers)
        self.num_layers += 1
        num_rows, width = len(value_RWD), value_RWD.shape[1:].numel()
        row_key = from_row(key, self.batch.first_row)
        keep = keep_mask(row_key, num_rows, width, self.rate, value_RWD.device)
        factor = keep.view(value_RWD.shape).to(value_RWD.dtype).div_(keep_rate(self.rate))
        return value_RWD * factor


def _dense(
    input: Tensor,
    layer: nn.Linear,
    dtype: torch.dtype | None = None,
    activation: Activation | None = None,
    *,
    outputs: slice | None = None,
) -> Tensor:
    """Apply a layer at each place; with ``outputs``, only these outputs of one without a bias."""
    weight = layer.weight if outputs is None else layer.weight[outputs]
    flat = dense(input.flatten(0, -2), weight, layer.bias, activation, compute_dtype=dtype)
    return flat.view(*input.shape[:-1], weight.shape[0])  # -1 needs a row


def _pieces(num_B: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield rows of like length with the length of the longest; rows without items are in none."""
    num_N, row_N = num_B.sort()
    lengths = num_N.tolist()  # sync
    stop, first = len(lengths), bisect_right(lengths, 0)
    while stop > first:
        width = lengths[stop - 1]
        most, few = max(1, LIMITS[num_B.device.type].places // width), _FEW_PLACES // width
        # Rows of half the length are a piece of their own, unless all together are few.
        start = max(first, stop - most, min(bisect_right(lengths, width // 2), stop - few))
        yield row_N[start:stop], width
        stop = start

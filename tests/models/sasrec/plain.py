"""SASRec row by row and place by place, in float64 and PyTorch's plainest operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.models.sasrec.batches import StepBatch
from foretaste.models.sasrec.model import SASRec
from foretaste.ops.random import Purpose, hash_words, stream_keys


def hidden_of(
    model: SASRec,
    items: Sequence[int],
    drop: Callable[[Tensor], Tensor] = lambda value: value,
    table_ID: Tensor | None = None,
) -> Tensor:
    """The vector [W, D] at each place of one history."""
    weights = dict(model.named_parameters())
    table_ID = weights["item_table"] if table_ID is None else table_ID
    scaled = table_ID[list(items)] * math.sqrt(model.config.factors)
    hidden = drop(scaled + weights["place_table"][: len(items)])
    heads = model.config.heads
    for number in range(model.config.blocks):

        def layer(value: Tensor, name: str, number: int = number) -> Tensor:
            prefix = f"blocks.{number}.{name}"
            return F.linear(value, weights[f"{prefix}.weight"], weights.get(f"{prefix}.bias"))

        def norm(value: Tensor, name: str, number: int = number) -> Tensor:
            prefix = f"blocks.{number}.{name}"
            scale, shift = weights[f"{prefix}.weight"], weights[f"{prefix}.bias"]
            return F.layer_norm(value, value.shape[-1:], scale, shift)

        query, key, value = layer(norm(hidden, "attention_norm"), "attention_input").chunk(3, -1)
        found = []
        for place in range(len(items)):
            of_heads = []
            for q, k, v in zip(*(one.chunk(heads, -1) for one in (query, key, value)), strict=True):
                # Only places up to this one.
                match = k[: place + 1] @ q[place] / math.sqrt(len(q[place]))
                of_heads.append(match.softmax(0) @ v[: place + 1])
            found.append(torch.cat(of_heads))
        hidden = hidden + drop(layer(torch.stack(found), "attention_output"))
        inner = layer(norm(hidden, "inner_norm"), "inner").relu()
        hidden = hidden + drop(layer(inner, "inner_output"))
    scale, shift = weights["last_norm.weight"], weights["last_norm.bias"]
    return F.layer_norm(hidden, hidden.shape[-1:], scale, shift)


def loss_of(
    model: SASRec, batch: StepBatch, rate: float = 0.0, table_ID: Tensor | None = None
) -> Tensor:
    """The mean of -log softmax of the next item over the steps of a whole batch.

    ``table_ID`` has the vectors of the items; the model's own table by default.
    """
    table_ID = dict(model.named_parameters())["item_table"] if table_ID is None else table_ID
    total, width = torch.zeros(()), batch.item_index_RW.shape[1]
    for row, items in enumerate(batch.item_index_RW.tolist()):
        of_row = batch.step_index_S // width == row
        masks = _Masks(batch, row, rate)
        hidden = hidden_of(model, items[: int(of_row.sum())], masks, table_ID)
        logits = hidden @ table_ID.T
        total = total + F.cross_entropy(logits, batch.target_S[of_row].long(), reduction="sum")
    return total / batch.num_samples


class _Masks:
    """Dropout of one row: byte ``place * width + column`` of the row's words decides."""

    def __init__(self, batch: StepBatch, row: int, rate: float) -> None:
        self.key, self.row, self.rate = batch.dropout_key, row, rate
        self.layer = 0

    def __call__(self, value: Tensor) -> Tensor:
        if not self.rate:
            return value
        key = stream_keys(self.key, Purpose.DROPOUT, self.layer)
        self.layer += 1
        words = hash_words(key, (self.row << 32) + torch.arange(-(-value.numel() // 8)))
        kept = words.view(torch.uint8)[: value.numel()].view(value.shape) >= round(256 * self.rate)
        return value * kept / (1.0 - round(256 * self.rate) / 256)

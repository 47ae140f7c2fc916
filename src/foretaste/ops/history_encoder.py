"""The first layer of an autoencoder over histories, without their dense [users, items] rows.

Shape suffixes: B users, N interactions, I items, H width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import hash_words, logical_shift_right

_LEVELS = 1 << 16


def encode(
    table_IH: Tensor, histories: HistoryTensors, *, dropout: float = 0.0, key: int = 0
) -> Tensor:
    """``dropout(x / |x|) @ table`` for each user's 0/1 history x, [B, H].

    An entry is dropped where the high 16 bits of word ``row * I + item`` of the stream ``key`` are
    below ``dropout * 2**16``; what stays is divided by the quantised keep rate, as the
    reference's dropout on the normalised input does. An empty history encodes to zero.
    """
    weight_N = _weights(histories, dropout, key, table_IH.dtype)
    return F.embedding_bag(
        histories.item_index,
        table_IH,
        histories.offsets.to(histories.item_index.dtype),
        mode="sum",
        per_sample_weights=weight_N,
        include_last_offset=True,
    )


def encode_reference(
    table_IH: Tensor, histories: HistoryTensors, *, dropout: float = 0.0, key: int = 0
) -> Tensor:
    """`encode` written out with dense rows: the definition of correct."""
    dense_BI = table_IH.new_zeros(len(histories), histories.num_items)
    weight_N = _weights(histories, dropout, key, table_IH.dtype)
    dense_BI[histories.row_index(), histories.item_index.long()] = weight_N
    return dense_BI @ table_IH


def _weights(histories: HistoryTensors, dropout: float, key: int, dtype: torch.dtype) -> Tensor:
    """Each entry's value: 1 / sqrt(n) in its normalised row, dropped or scaled up, [N]."""
    row_index_N = histories.row_index()
    weight_N = histories.lengths().to(dtype).rsqrt_()[row_index_N]
    if dropout > 0.0:
        threshold = min(round(dropout * _LEVELS), _LEVELS - 1)
        word_N = hash_words(key, row_index_N * histories.num_items + histories.item_index)
        weight_N *= logical_shift_right(word_N, 48) >= threshold
        weight_N *= 1.0 / (1.0 - threshold / _LEVELS)
    return weight_N

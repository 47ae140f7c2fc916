"""The history encoder written out with dense rows: the definition of correct, on any device.

Shape suffixes: B users, N interactions, I items, H width.
"""

from __future__ import annotations

from torch import Tensor

from foretaste.ops.dropout import ENTRY_BITS, keep_entries, keep_rate
from foretaste.ops.histories import HistoryTensors


def encode(
    table_IH: Tensor, histories: HistoryTensors, *, dropout: float = 0.0, key: int | Tensor = 0
) -> Tensor:
    """``dropout(x / |x|) @ table`` for each user's 0/1 history x, [B, H].

    An entry is dropped where its 16 bits of the stream ``key`` (`keep_entries`) are below
    ``dropout * 2**16``; what stays is divided by the quantised keep rate, as the
    reference systems' dropout on the normalised input does. An empty history encodes to zero.
    """
    row_index_N = histories.row_index()
    weight_N = histories.lengths().to(table_IH.dtype).rsqrt_()[row_index_N]
    if dropout > 0.0:
        keep_N = keep_entries(histories, dropout, key)
        weight_N *= keep_N.to(weight_N.dtype) * (1.0 / keep_rate(dropout, ENTRY_BITS))
    dense_BI = table_IH.new_zeros(len(histories), histories.num_items)
    dense_BI[row_index_N, histories.item_index.long()] = weight_N
    return dense_BI @ table_IH

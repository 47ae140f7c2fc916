"""The first layer of an autoencoder over histories, without their dense [users, items] rows.

`reference` is the definition; `chunked` and `triton` sum table rows straight from the histories.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from foretaste.ops.buffers import Buffers
from foretaste.ops.embedding_bag import chunked, reference
from foretaste.ops.histories import HistoryTensors

Implementation = Literal["reference", "chunked", "triton"]


def encode(
    table_IH: Tensor,
    histories: HistoryTensors,
    *,
    dropout: float = 0.0,
    key: int | Tensor = 0,
    buffers: Buffers | None = None,
    implementation: Implementation = "chunked",
) -> Tensor:
    """``dropout(x / |x|) @ table`` for each user's 0/1 history x, [B, H]: `reference.encode`.

    Args:
        table_IH: float [I, H]; the result is differentiable with respect to it, once unless by
            ``reference``.
        histories: B users over I items; an empty history encodes to zero.
        dropout: share of entries that are dropped, in [0, 1).
        key: stream of random words that decides which, from `foretaste.ops.random.stream_key`.
        buffers: where to keep the memory of the table's gradient from one call to the next.
        implementation: ``reference`` makes dense rows; ``chunked`` sums table rows, on any device;
            ``triton`` is the same in one kernel, for CUDA tensors, and never waits for the device.
    """
    assert table_IH.shape[0] == histories.num_items, "one row of the table per item"
    if implementation == "reference":
        return reference.encode(table_IH, histories, dropout=dropout, key=key)
    if implementation == "triton":
        from foretaste.ops.embedding_bag import triton

        return triton.encode(table_IH, histories, dropout=dropout, key=key)
    return chunked.encode(table_IH, histories, dropout=dropout, key=key, buffers=buffers)

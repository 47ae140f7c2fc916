"""The multinomial likelihood over a sample of the catalogue: an approximation.

The sample is for catalogues so large that even one pass over the items for every batch is too much.
The items that anyone in the batch has are always there. One of the others is drawn from each of
equally long ranges, and stands for the whole range (Horvitz & Thompson 1952). Its logit grows by
the log of the range's length, the "logQ correction" of sampled softmax (Bengio & Senécal 2008). The
estimate of each user's total is unbiased, the estimate of its logarithm is not: the loss is too low
on average, by less with more samples. With as many samples as items it is exact.

Shape suffixes: B users, I items, D width of the last hidden layer, U items that the batch has,
S sampled items, C both together, in ascending order within each part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretaste.ops.autograd import Context, Gradients
from foretaste.ops.buffers import Buffers
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import bounded_integers, hash_words
from foretaste.ops.softmax_loss import Implementation, loss


def sampled_loss(
    hidden_BD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
    *,
    num_samples: int,
    key: int | Tensor,
    scale: float = 1.0,
    compute_dtype: torch.dtype | None = None,
    buffers: Buffers | None = None,
    implementation: Implementation = "chunked",
    all_items: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return an approximation of ``scale * reference.loss`` that looks at a sample of the items.

    Products and logits grow with the items of the batch and the samples; the gradients of
    ``weight_ID`` and ``bias_I`` stay dense, with zeros for items that were not drawn.
    Differentiable once. Waits for the device: how many items the batch has decides shapes.

    Args:
        num_samples: the number of items drawn, among the items that nobody in the batch has.
        key: stream of random words that decides which, from `foretaste.ops.random.stream_key`.
        all_items: from the distinct items of ``targets``, ascending, to those of the whole batch,
            ascending. For ranks that have a part of a batch: all look at the same items.
    """
    buffers = buffers or Buffers()
    item_index_N = targets.item_index[: int(targets.offsets[-1])]  # without padding
    owned_U, position_N = torch.unique(item_index_N, return_inverse=True)
    if all_items is not None:
        own_U, owned_U = owned_U.long(), all_items(owned_U)
        position_N = torch.searchsorted(owned_U, own_U)[position_N]
    sampled_S, correction_S = sample_others(owned_U.long(), targets.num_items, num_samples, key)
    index_C = torch.cat([owned_U, sampled_S])
    correction_C = torch.cat([correction_S.new_zeros(len(owned_U)), correction_S])
    layer = _Rows.apply(index_C, weight_ID, bias_I, buffers)  # type: ignore[no-untyped-call]
    weight_CD, bias_C = cast(tuple[Tensor, Tensor], layer)
    return loss(
        hidden_BD,
        weight_CD,
        bias_C + correction_C.to(bias_C.dtype),
        replace(targets, item_index=position_N.to(torch.int32), num_items=len(index_C)),
        scale=scale,
        compute_dtype=compute_dtype,
        buffers=buffers,
        implementation=implementation,
    )


def sample_others(
    owned_U: Tensor, num_items: int, num_samples: int, key: int | Tensor
) -> tuple[Tensor, Tensor]:
    """Return items outside the ascending ``owned_U``, and the log of how many each represents.

    Distinct and ascending, int64 and float32 [min(num_samples, what there is)]. The items left are
    cut into that many ranges whose lengths differ by at most one, and one is drawn from each, by
    the words of ``key``.
    """
    num_others = num_items - len(owned_U)
    num_ranges = min(num_samples, num_others)
    range_S = torch.arange(num_ranges, device=owned_U.device)
    start_S = range_S * num_others // max(1, num_ranges)
    length_S = (range_S + 1) * num_others // max(1, num_ranges) - start_S
    rank_S = start_S + bounded_integers(hash_words(key, range_S), length_S)
    # the r-th item that is not owned is r plus the number of owned ones before it
    gaps_U = owned_U - torch.arange(len(owned_U), device=owned_U.device)
    item_S = rank_S + torch.searchsorted(gaps_U, rank_S, right=True)
    return item_S, length_S.float().log_()


class _RowsContext(Context):
    shape: torch.Size
    buffers: Buffers


class _Rows(torch.autograd.Function):
    """Some items' weights and biases; ``index_C`` holds no item twice."""

    @staticmethod
    def forward(
        ctx: _RowsContext, index_C: Tensor, weight_ID: Tensor, bias_I: Tensor, buffers: Buffers
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(index_C)
        ctx.shape, ctx.buffers = weight_ID.shape, buffers
        bias_C = bias_I.index_select(0, index_C)
        if not ctx.needs_input_grad[2]:
            ctx.mark_non_differentiable(bias_C)
        return weight_ID.index_select(0, index_C), bias_C

    @staticmethod
    @once_differentiable
    def backward(ctx: _RowsContext, *upstream: Tensor) -> Gradients:
        (index_C,) = ctx.saved_tensors
        weight_CD, bias_C = upstream
        name, device = "sampled weight gradient", weight_CD.device
        weight_ID = ctx.buffers.empty(name, ctx.shape, weight_CD.dtype, device)
        weight_ID.zero_().index_copy_(0, index_C, weight_CD)
        if not ctx.needs_input_grad[2]:
            return None, weight_ID, None, None
        bias_I = bias_C.new_zeros(ctx.shape[0]).index_copy_(0, index_C, bias_C)
        return None, weight_ID, bias_I, None

"""The multinomial likelihood in chunks of users: value and gradients in one pass.

A chunk's logits become their own gradient in place, and the two backward products consume it at
once. So memory grows with the chunk and not with the batch. Logits are in base 2, whose
exponentials are the cheapest. With e the exponentials of a user's logits less a shift, s their sum
and n the length of the history, the gradient of the logits is ``(n / s) (e - x s / n)``. The chunk
then holds ``e - x s / n``, and the factors ``n / s`` go to the small matrices around it.

Shape suffixes: B users, c users of a chunk, I items, t items of a tile, D width of the last hidden
layer, E that width and, if the bias learns, one more for it, padded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from foretaste.ops.buffers import Buffers
from foretaste.ops.dense import linear, product
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.limits import LIMITS
from foretaste.ops.precomputed_gradients import with_gradients
from foretaste.ops.softmax_loss.exponentials import Exponentials

if TYPE_CHECKING:
    from foretaste.ops.triton.softmax_loss import TritonExponentials

_NARROW_SHARE = 4
"""The least number of rows of a chunk for each column of narrow weights."""

_ALIGNED = 16
_LOG2_E = math.log2(math.e)
_FLOAT16_BITS = 15
"""2 to the power of this is below the largest float16."""


def loss(
    hidden_BD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
    *,
    scale: float = 1.0,
    compute_dtype: torch.dtype | None = None,
    buffers: Buffers | None = None,
    implementation: Literal["chunked", "triton"] = "chunked",
) -> Tensor:
    """Return ``scale * reference.loss``, differentiable once; backward gives its gradients away.

    Products run and the chunk's logits are kept in ``compute_dtype``; all sums in float32 at least.
    No product is computed for the gradient of an input that wants none.
    """
    inputs = (hidden_BD, weight_ID, bias_I)
    wants = [torch.is_grad_enabled() and tensor.requires_grad for tensor in inputs]
    dtype = compute_dtype or weight_ID.dtype
    with torch.no_grad():
        work = _Pass(inputs, targets, scale, dtype, buffers or Buffers(), implementation)
        value = work.run(*wants)
    return with_gradients(value, inputs, work.gradients()) if any(wants) else value


def _narrow_rows(weight_ID: Tensor) -> int:
    """Return rows of a chunk that is not cut into tiles; 0 unless the weights are narrow."""
    num_items, width = weight_ID.shape
    row_bytes = max(1, num_items) * weight_ID.itemsize
    num_rows = LIMITS[weight_ID.device.type].narrow_bytes // row_bytes
    return num_rows if num_rows >= _NARROW_SHARE * width else 0


def row_chunks(num_rows: int, weight_ID: Tensor) -> list[slice]:
    """Return equal chunks whose logits take a bounded share of memory, or the weights' size."""
    num_items, width = weight_ID.shape
    row_bytes = max(1, num_items) * weight_ID.itemsize
    in_budget = _narrow_rows(weight_ID) or LIMITS[weight_ID.device.type].logits_bytes // row_bytes
    num_chunks = max(1, -(-num_rows // max(1, in_budget, width)))
    bounds = [number * num_rows // num_chunks for number in range(num_chunks + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def logits_bytes(num_rows: int, weight_ID: Tensor) -> int:
    """Return memory of the logits of the largest chunk of a batch with that number of rows."""
    rows = max(one.stop - one.start for one in row_chunks(num_rows, weight_ID))
    return int(rows * len(weight_ID) * weight_ID.itemsize)


class _Pass:
    """One pass over a batch: the loss, and the gradients of its inputs if they are wanted."""

    def __init__(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        targets: HistoryTensors,
        scale: float,
        dtype: torch.dtype,
        buffers: Buffers,
        implementation: str,
    ) -> None:
        self.inputs = hidden_BD, weight_ID, bias_I = inputs
        self.sum_dtype = torch.promote_types(weight_ID.dtype, torch.float32)
        self.scale = scale
        # float16 has no room for the factors of a large batch: its gradients are scaled at the end
        self.late_scale = scale if dtype == torch.float16 else 1.0
        self.dtype = dtype
        self.buffers = buffers
        self.hidden_BD = hidden_BD.to(dtype)
        self.weight_ID, self.bias_I = weight_ID, bias_I
        if weight_ID.dtype != dtype:
            # It is copied anyway: the copy is padded to a multiple of 16 by items that nobody has.
            num_items, width = weight_ID.shape
            padded = -(-num_items // _ALIGNED) * _ALIGNED
            self.weight_ID = self._empty("weight", (padded, width), dtype)
            self.weight_ID[:num_items] = weight_ID
            self.weight_ID[num_items:] = 0.0
            # exp(-inf) is 0: the padding has no share in any user's total.
            self.bias_I = F.pad(bias_I, (0, padded - num_items), value=-math.inf)
        self.chunks = row_chunks(len(targets), self.weight_ID)
        self.is_narrow = _narrow_rows(self.weight_ID) > 0
        self.items_at_once = LIMITS[hidden_BD.device.type].items
        if self.is_narrow:
            self.items_at_once = max(1, len(self.weight_ID))
        self.exponentials = self._exponentials(targets, implementation)
        self.hidden_gradient_BD: Tensor | None = None
        self.weight_gradient_ID: Tensor | None = None
        self.bias_gradient_I: Tensor | None = None
        self.sums_EI: Tensor | None = None
        """The gradients of weights and bias, transposed, while chunks are added."""

    def run(self, wants_hidden: bool, wants_weight: bool, wants_bias: bool) -> Tensor:
        """Return the scaled loss; afterwards those ``gradients`` that are wanted are complete."""
        hidden_BD, weight_ID, bias_I = self.inputs
        if wants_hidden:
            self.hidden_gradient_BD = torch.zeros_like(hidden_BD, dtype=self.sum_dtype)
        if wants_bias:
            self.bias_gradient_I = torch.zeros_like(bias_I)
        if wants_weight or wants_bias:
            self._make_room_for_weight_gradient()
        value = self.bias_I.new_zeros((), dtype=self.sum_dtype)
        for rows in self.chunks:
            slope_cI, chunk_value, factor_c = self._slopes(rows)
            value += chunk_value
            factor_c1 = (factor_c * (self.scale / self.late_scale))[:, None]
            if self.hidden_gradient_BD is not None:
                self._add_hidden_gradient(self.hidden_gradient_BD[rows], slope_cI, factor_c1)
            if self.weight_gradient_ID is not None:
                self._add_output_gradients(self.weight_gradient_ID, slope_cI, rows, factor_c1)
        if self.weight_gradient_ID is not None and self.sums_EI is not None:
            num_items, width = weight_ID.shape
            self.weight_gradient_ID.copy_(self.sums_EI[:width, :num_items].T)
            if self.bias_gradient_I is not None:
                self.bias_gradient_I.copy_(self.sums_EI[width, :num_items])
        if self.late_scale != 1.0:
            for gradient in self.gradients():
                if gradient is not None:
                    gradient *= self.late_scale
        # Logits were in base 2: ln x = log2 x / log2 e.
        return value.mul_(self.scale / _LOG2_E)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradient of each input; None if it is not wanted."""
        return [self.hidden_gradient_BD, self.weight_gradient_ID, self.bias_gradient_I]

    def _exponentials(
        self, targets: HistoryTensors, implementation: str
    ) -> Exponentials | TritonExponentials:
        headroom = 0
        if self.dtype == torch.float16:  # t / n is at most the number of items
            num_items = max(1, len(self.inputs[1]))
            headroom = max(0, math.ceil(math.log2(num_items)) - _FLOAT16_BITS)
        if implementation == "triton":
            from foretaste.ops.triton.softmax_loss import TritonExponentials

            return TritonExponentials(targets, headroom)
        starts = [rows.start for rows in self.chunks]
        return Exponentials(targets, starts, self.sum_dtype, headroom)

    def _slopes(self, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``e - x t / n`` of a chunk, its value and its factors ``n / t``."""
        # oneDNN can end a product in a sigmoid, which far below 0 is the exponential. That spared
        # at most 6 % of a step in bfloat16, and errors were smaller by 6 to 23 %.
        hidden_cD, bias_I = (
            (tensor * _LOG2_E).to(self.dtype) for tensor in (self.inputs[0][rows], self.bias_I)
        )
        logits_cI = self._logits(hidden_cD, bias_I)
        return logits_cI, *self.exponentials.likelihood_(logits_cI, rows)

    def _logits(self, hidden_cD: Tensor, bias_I: Tensor) -> Tensor:
        """Return the chunk's logits; many items go through the product in tiles."""
        weight_ID = self.weight_ID
        if len(weight_ID) <= self.items_at_once:
            return linear(hidden_cD, weight_ID, bias_I)
        logits_cI = self._empty("logits", (len(hidden_cD), len(weight_ID)), self.dtype)
        for items in self._tiles():
            logits_cI[:, items] = linear(hidden_cD, weight_ID[items], bias_I[items])
        return logits_cI

    def _add_hidden_gradient(
        self, gradient_cD: Tensor, slope_cI: Tensor, factor_c1: Tensor
    ) -> None:
        for items in self._tiles():
            product_cD = product(slope_cI[:, items], self.weight_ID[items]).to(self.sum_dtype)
            gradient_cD.addcmul_(product_cD, factor_c1)

    @property
    def _gradient_width(self) -> int:
        """Columns of the hidden rows and, if the bias learns, one column of ones for the bias."""
        width = self.hidden_BD.shape[1]
        if self.bias_gradient_I is None:
            return width
        return -(-(width + 1) // _ALIGNED) * _ALIGNED

    def _make_room_for_weight_gradient(self) -> None:
        weight_ID = self.inputs[1]
        self.weight_gradient_ID = self._empty("weight gradient", weight_ID.shape, weight_ID.dtype)
        # oneDNN copies what it sums over rows: a transposed left side. Narrow sums are transposed
        # once in the end, in place of the slopes of every chunk.
        rows, width = self.chunks[0], self._gradient_width
        if self.is_narrow and rows.stop - rows.start >= 2 * width:
            self.sums_EI = self._empty("sums", (width, len(self.weight_ID)), self.sum_dtype)

    def _add_output_gradients(
        self, weight_gradient_ID: Tensor, slope_cI: Tensor, rows: slice, factor_c1: Tensor
    ) -> None:
        hidden_cD, (num_items, width) = self.hidden_BD[rows], weight_gradient_ID.shape
        weighted_cE = hidden_cD.new_zeros(len(hidden_cD), self._gradient_width)
        torch.mul(hidden_cD, factor_c1.to(self.dtype), out=weighted_cE[:, :width])
        if self.bias_gradient_I is not None:
            weighted_cE[:, width] = factor_c1.squeeze(1)
        if self.sums_EI is not None:
            both_EI = product(weighted_cE.T, slope_cI)
            if rows.start == 0:
                self.sums_EI.copy_(both_EI)
            else:
                self.sums_EI += both_EI
            return
        for items in self._tiles():
            both_tE = product(slope_cI[:, items].T, weighted_cE)[: num_items - items.start]
            if self.bias_gradient_I is not None:
                self.bias_gradient_I[items] += both_tE[:, width]
            # The first chunk writes and the others add, so memory that is used again needs no
            # zeros.
            if rows.start == 0:
                weight_gradient_ID[items] = both_tE[:, :width]
            else:
                weight_gradient_ID[items] += both_tE[:, :width].to(weight_gradient_ID.dtype)

    def _tiles(self) -> Iterator[slice]:
        num_items = len(self.weight_ID)
        for start in range(0, num_items, self.items_at_once):
            yield slice(start, min(start + self.items_at_once, num_items))

    def _empty(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return self.buffers.empty(f"multinomial {name}", shape, dtype, self.bias_I.device)

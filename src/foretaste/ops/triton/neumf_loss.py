"""The interaction on a CUDA GPU: loss and gradients from one fused kernel, sums without atomics.

A tile of samples is gathered, sent forward through the tower, compared with its labels and sent
backward again in one visit (`neumf_kernel`). Only the activations and gradients that weight
gradients need leave the chip. Weight gradients are products over all samples, left to cuBLAS. Sums
by item go through a sorted order (`triton.segments`). Sums over a row's candidates happen in the
tile.

Bytes of one step in half precision, for S samples of K to a row and I items, H -> D1 -> D2 wide
with F factors (in brackets: megabytes at S = 2**20, K = 5, I = 26,744, 256 -> 128 -> 64, F = 64)::

    read    user rows once per row, S/K (2 H + 4 F)                          [161]
            item rows once per sample, from L2: S (2 H + 4 F)               [(805)]
    write   activations of all layers but the last, 2 S (H + D1)             [805]
            gradients of all preactivations, 2 S (H + D1 + D2), slopes 4 S   [944]
            gradients of the users' sides, S/K (2 H + 4 F)                   [161]
    read    first activations once more: 2 S H                               [537]
            weight gradients: 2 S (H + D1 + D1 + D2)                        [1208]
            sums by item: 2 S H, user factors once more from L2: 4 S F       [537 (268)]
    order   keys, positions and pieces of the sort                          [~100]

3.9 GB through device memory, 0.9 ms at 4.3 TB/s; 6 S (H D1 + D1 D2) = 0.26 TFLOP of products,
0.33 ms at 790 TFLOP/s. So the step is bound by memory; the products overlap with it.

Gradients are multiplied by a loss scale, the power of two that makes the largest weight about 1:
weights of 1 / samples would vanish in float16.

Shape suffixes: B rows, K candidates per row, S samples, I items, F factors, H and D tower widths.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import triton.language as tl
from torch import Tensor

from foretaste.ops.dense import product_of_samples
from foretaste.ops.dropout import drop_threshold, keep_rate
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout, loss_scale_of
from foretaste.ops.precomputed_gradients import with_gradients
from foretaste.ops.random import from_row, key_on_device
from foretaste.ops.triton.neumf_kernel import (
    Compared,
    Shape,
    Tables,
    Weights,
    Written,
    interaction_step,
)
from foretaste.ops.triton.segments import Pieces, sum_rows
from foretaste.ops.triton.support import launch

_DTYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}
_NARROWEST = 16
"""The least width `tl.dot` multiplies."""
_BLOCK = 64
# Columns of the first layer in float32 at once: of 64 samples, 32 numbers in the registers of each
# of 128 threads.
_CHUNK = 64
_NUM_WARPS = 4
_NUM_STAGES = 1
_PROGRAMS_PER_PROCESSOR = 2
"""Programs that run at once where their shared memory fits twice. NVIDIA's sizes take 118,784 of
the 233,472 bytes of capability 9.0 with Triton 3.7.1: there the second begins when the first has
ended."""
_INTERPRETED_PROGRAMS = 2
_WIDEST = 512
"""A tile of samples this wide still fits the registers."""


def loss(
    inputs: InteractionInputs,
    samples: Samples,
    dropout: TowerDropout | None = None,
    *,
    compute_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the loss of `reference.loss`, once differentiable; products in ``compute_dtype``.

    Everything else is float32, and so are the gradients handed to autograd (bfloat16 for bfloat16
    inputs). `supports` says what it can take.
    """
    dtype = compute_dtype or inputs.item_tower_IH.dtype
    with torch.no_grad():
        value, gradients = _Step(inputs, samples, dropout, dtype).run()
    return with_gradients(value, inputs.tensors(), gradients)


def supports(inputs: InteractionInputs, samples: Samples, dtype: torch.dtype) -> bool:
    """Return True if `loss` can compute this: dtypes, candidates of a row, widths.

    What fits a GPU's shared memory is known once it is compiled: see `support.launch`.
    """
    return (
        dtype in _DTYPES
        and all(tensor.dtype in _DTYPES for tensor in inputs.tensors())
        and samples.item_index_BK.shape[1] <= _BLOCK
        and max(*_widths_of(inputs), inputs.output_product_F.numel()) <= _WIDEST
    )


class _Step:
    """One launch over all samples of a step, and the gradients computed from its results."""

    def __init__(
        self,
        inputs: InteractionInputs,
        samples: Samples,
        dropout: TowerDropout | None,
        dtype: torch.dtype,
    ) -> None:
        self.inputs = inputs
        self.samples = samples
        self.dtype = dtype
        self.widths = _widths_of(inputs)
        dropout = dropout or TowerDropout(0.0, key=0)
        self.rate = dropout.rate
        key_1 = key_on_device(inputs.device, dropout.key)
        self.dropout_2 = torch.cat([key_1, from_row(key_1.new_zeros(1), dropout.first_sample)])
        self.scale = 1.0 / keep_rate(self.rate)
        self.loss_scale_2 = loss_scale_of(samples.weight_BK)
        self.inverse = self.loss_scale_2[1]

    def run(self) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss, and the gradient of every input that asks for one."""
        inputs, num_layers = self.inputs, len(self.inputs.layers)
        # Everything after the kernel reads what it wrote. Gradients of samples and their sums carry
        # the loss scale, and `inverse` takes it out in float32; the kernel has taken it out of
        # users' rows.
        written = self._launch()
        sums = written.sums.sum(0).split(self._sum_lengths())
        loss, slopes, product_F, tower_D, *biases = sums
        item_product_IF, item_tower_IH = self._item_gradients(written)
        hidden: list[Tensor] = []
        for number, bias in enumerate(reversed(biases), start=1):
            gradient_SD = written.gradients[num_layers - number]
            weight = product_of_samples(gradient_SD, written.activations[number - 1])
            hidden += [weight * (self.inverse * self.scale), bias * self.inverse]
        gradients = InteractionInputs(
            user_product_BF=written.user_product_BF,
            item_product_IF=item_product_IF,
            user_tower_BH=written.user_tower_BH,
            item_tower_IH=item_tower_IH,
            output_product_F=product_F * self.inverse,
            output_tower_D=tower_D * (self.inverse * self.scale),
            output_bias_1=slopes * self.inverse,
            hidden=tuple(hidden),
        )
        pairs = zip(inputs.tensors(), gradients.tensors(), strict=True)
        return loss[0], [
            gradient[: tensor.shape[0]] if tensor.requires_grad else None
            for tensor, gradient in pairs
        ]

    def _launch(self) -> Written:
        inputs, samples, dtype = self.inputs, self.samples, self.dtype
        num_rows, num_candidates = samples.item_index_BK.shape
        written = self._empty(num_rows * num_candidates)
        scaled = [weight.float() * self.scale for weight, _ in inputs.layers]
        label_BK = samples.label_BK.expand(num_rows, num_candidates)
        weight_BK = samples.weight_BK.expand(num_rows, num_candidates)
        num_programs = _INTERPRETED_PROGRAMS
        if inputs.device.type == "cuda":
            processor = torch.cuda.get_device_properties(inputs.device)
            # There are as many programs as run at once. Each takes tile after tile, so it loads the
            # weights once.
            num_programs = _PROGRAMS_PER_PROCESSOR * processor.multi_processor_count
        launch(
            interaction_step,
            min(written.sums.shape[0], num_programs),
            Tables(
                inputs.user_product_BF.contiguous(),
                inputs.item_product_IF.contiguous(),
                inputs.user_tower_BH.to(dtype).contiguous(),
                inputs.item_tower_IH.to(dtype).contiguous(),
            ),
            Compared(
                samples.item_index_BK.contiguous(),
                label_BK,
                _constants(label_BK.stride()),
                weight_BK,
                _constants(weight_BK.stride()),
                self.loss_scale_2,
            ),
            Weights(
                inputs.output_product_F.contiguous(),
                inputs.output_tower_D.float() * self.scale,
                inputs.output_bias_1,
                tuple(weight.to(dtype).contiguous() for weight in scaled),
                tuple(bias.contiguous() for _, bias in inputs.layers),
            ),
            written,
            self.dropout_2,
            num_rows,
            self._shape(),
            num_warps=_NUM_WARPS,
            num_stages=_NUM_STAGES,
        )
        return written

    def _empty(self, num_samples: int) -> Written:
        """Return memory for the results of the kernel."""
        inputs, dtype = self.inputs, self.dtype
        new_empty = inputs.output_bias_1.new_empty
        # A tile holds whole rows, so that sums over a row's candidates need no other tile.
        num_tiles = -(-inputs.num_rows // (_BLOCK // self.samples.item_index_BK.shape[1]))
        rows = [new_empty(num_samples, width, dtype=dtype) for width in self.widths]
        activations = [torch.empty_like(row) for row in rows[:-1]]
        return Written(
            user_product_BF=_gradient_of(inputs.user_product_BF),
            user_tower_BH=_gradient_of(inputs.user_tower_BH),
            activations=tuple(activations),
            slope_S=new_empty(num_samples, dtype=torch.float32),
            gradients=tuple(reversed(rows)),
            sums=new_empty(num_tiles, sum(self._sum_lengths()), dtype=torch.float32),
        )

    def _item_gradients(self, written: Written) -> tuple[Tensor, Tensor]:
        """Return gradients of the items' factors and of their preactivations, summed by item."""
        inputs, index_BK = self.inputs, self.samples.item_index_BK
        pieces = Pieces.of(index_BK.reshape(-1), inputs.num_items)
        product_IF = sum_rows(
            inputs.user_product_BF.contiguous(),
            pieces,
            inputs.output_product_F.float() * self.inverse,
            weight_S=written.slope_S,
            samples_per_row=index_BK.shape[1],
            dtype=_gradient_dtype(inputs.item_product_IF),
        )
        tower_IH = sum_rows(
            written.gradients[-1],
            pieces,
            self.inverse.repeat(self.widths[0]),
            dtype=_gradient_dtype(inputs.item_tower_IH),
        )
        return product_IF, tower_IH

    def _sum_lengths(self) -> list[int]:
        """Return lengths of each tile's sums: losses, slopes, output weights, biases from last."""
        factors = self.inputs.output_product_F.numel()
        widths = [_power_of_two(width) for width in self.widths]
        return [1, 1, _power_of_two(factors), widths[-1], *widths[:0:-1]]

    def _shape(self) -> Shape:
        num_candidates = self.samples.item_index_BK.shape[1]
        num_factors = self.inputs.output_product_F.numel()
        tile_rows = _BLOCK // num_candidates
        precision = _float32_precision()
        half = self.dtype.itemsize == 2
        chunk = _power_of_two(self.widths[0])
        if len(self.widths) > 1:
            chunk = min(chunk, _CHUNK)
        return Shape(
            candidates=tl.constexpr(num_candidates),
            factors=tl.constexpr(num_factors),
            padded_factors=tl.constexpr(_power_of_two(num_factors)),
            widths=_constants(self.widths),
            padded=_constants(_power_of_two(width) for width in self.widths),
            chunk=tl.constexpr(chunk),
            threshold=tl.constexpr(drop_threshold(self.rate)),
            block=tl.constexpr(_BLOCK),
            padded_rows=tl.constexpr(_power_of_two(tile_rows)),
            dtype=tl.constexpr(_DTYPES[self.dtype]),
            precision=tl.constexpr(precision),
            product_precision=tl.constexpr("tf32" if half else precision),
            num_sums=tl.constexpr(sum(self._sum_lengths())),
        )


def _gradient_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of gradients: not float16, which underflows before autograd scales."""
    return torch.bfloat16 if tensor.dtype == torch.bfloat16 else torch.float32


def _gradient_of(tensor: Tensor) -> Tensor:
    return torch.empty_like(
        tensor, dtype=_gradient_dtype(tensor), memory_format=torch.contiguous_format
    )


def _constants(values: Iterable[int]) -> tuple[tl.constexpr, ...]:
    """Return each value as a `tl.constexpr`."""
    return tuple(tl.constexpr(value) for value in values)


def _widths_of(inputs: InteractionInputs) -> list[int]:
    """Return widths of the tower's layers, the first included."""
    return [inputs.item_tower_IH.shape[1], *(weight.shape[0] for weight, _ in inputs.layers)]


def _power_of_two(width: int) -> int:
    """Return the least power of two that holds ``width`` columns, as kernels need."""
    return max(_NARROWEST, 1 << (width - 1).bit_length())


def _float32_precision() -> str:
    """Return the precision of float32 products, as PyTorch's ``fp32_precision`` names it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"

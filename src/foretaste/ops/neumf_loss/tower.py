"""NeuMF's tower after its split first layer, forward and backward by hand on chunks of samples.

Relu and dropout share one mask, the activation's own zeros, so backward needs nothing else. The
scale of what dropout keeps is folded into the weights of the next layer.

Shape suffixes: S samples of a chunk, H width of the first layer, D of the last, M outputs and N
inputs of a layer.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from foretaste.ops.dense import linear, product_of_samples, sum_of_samples
from foretaste.ops.dropout import LayerMasks, keep_rate
from foretaste.ops.neumf_loss.inputs import InteractionInputs, TowerDropout, layer_keys
from foretaste.ops.torch_internals import relu_backward


class Tower:
    """Weights in the dtype of the products, and the sums of their gradients in float32 at least.

    Args:
        max_samples: of the largest chunk.
    """

    def __init__(
        self,
        inputs: InteractionInputs,
        dropout: TowerDropout | None,
        dtype: torch.dtype,
        max_samples: int,
    ) -> None:
        self.dtype = dtype
        self.scale = 1.0
        self.masks: LayerMasks | None = None
        self.width = inputs.item_tower_IH.shape[1]
        layers = inputs.layers
        if dropout is not None and dropout.rate > 0.0 and self.width > 0:
            self.scale = 1.0 / keep_rate(dropout.rate)
            widths = [self.width, *(weight.shape[0] for weight, _ in layers)]
            keys_L = layer_keys(dropout, len(widths), inputs.device)
            self.masks = LayerMasks(keys_L, widths, dropout.rate, max_samples, dtype)
        # Scaled before they are rounded to half precision: each weight is rounded once.
        self.weights = [(weight * self.scale).to(dtype) for weight, _ in layers]
        self.biases = [bias.to(dtype) for _, bias in layers]
        self.output_D = inputs.output_tower_D * self.scale
        self.frozen = not any(tensor.requires_grad for tensor in inputs.hidden)
        self.gradients = [accumulator(tensor) for tensor in inputs.hidden]

    @cached_property
    def backward_weights(self) -> list[Tensor]:
        """The weights for backward."""
        return [weight.T.contiguous() for weight in self.weights]

    def forward(self, activation_SH: Tensor, first_sample: int = 0) -> list[Tensor]:
        """Return each layer's activations [S, width]; dropout changes the first in place."""
        num_samples = activation_SH.shape[0]
        masks = self.masks
        random_bytes = masks.draw(first_sample, num_samples) if masks else []
        activations = [activation_SH]
        for number in range(len(self.weights) + 1):
            if number > 0:
                weight, bias = self.weights[number - 1], self.biases[number - 1]
                activations.append(linear(activations[-1], weight, bias, "relu"))
            if masks:
                masks.drop_(activations[number], random_bytes[number])
        return activations

    def backward(self, activations: list[Tensor], slope_S: Tensor, out_SH: Tensor) -> None:
        """Add up the weights' gradients and write the preactivation's to ``out_SH``.

        ``slope_S`` is the gradient of the samples' logits.
        """
        gradient = torch.outer(slope_S, self.output_D).to(activations[-1].dtype)
        for number in range(len(self.weights), 0, -1):
            # Zero where relu or dropout made the activation zero.
            gradient = relu_backward(gradient, activations[number], out=gradient)
            if not self.frozen:
                weight_gradient, bias_gradient = self.gradients[2 * number - 2 : 2 * number]
                # The weights in use are `scale` times the parameters, so their gradient is `scale`
                # times too.
                product_MN = product_of_samples(gradient, activations[number - 1])
                weight_gradient.add_(product_MN, alpha=self.scale)
                bias_gradient.add_(sum_of_samples(gradient, bias_gradient.dtype))
            gradient = linear(gradient, self.backward_weights[number - 1])
        relu_backward(gradient, activations[0], out=out_SH)


def accumulator(tensor: Tensor) -> Tensor:
    """Return zeros to add gradients of ``tensor`` up in: its shape, float32 at least."""
    return torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))

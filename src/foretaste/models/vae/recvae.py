"""RecVAE (Shenbin et al. 2020, arXiv 1912.11160), as its authors' code has it.

Shape suffixes: B users, H width of the encoder, L latent width, C twice that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.models.batches import Batch, Batches
from foretaste.models.config import ModelConfig, Setting, TrainingSize
from foretaste.models.layers import Layer
from foretaste.models.parts import SINGLE, Shards
from foretaste.models.vae.autoencoder import HistoryAutoencoder
from foretaste.models.vae.batches import AlternatingBatches, HistoryBatches, PhaseBatch, small_batch
from foretaste.models.vae.config import RecVAEConfig
from foretaste.ops.dense import dense
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import Purpose, fill_uniform_, from_row, stream_key
from foretaste.ops.reparameterize import divergence_from_mixture, reparameterize

_NUM_HIDDEN = 4
"""Layers of the encoder after its first."""
_MANY_USERS = 50_000
"""Number of users from which the settings are the authors'."""
_FALLING = (
    (1_000, 20, 128, 0.002),
    (2_000, 10, 128, 0.002),
    (10_000, 18, 128, 0.002),
    (_MANY_USERS, 13, 256, 0.001),
)
"""Users below which a falling rate has these settings: epochs, largest batch, rate at the start.
They were found on ml-100k (755 users), lastfm (1,516), ml-1m (4,828) and steam (11,055). With 10
epochs NDCG@100 on ml-100k was 0.499 in place of 0.525, and 40 epochs gained nothing."""
_NORM_EPS = 0.1
"""Added to the variance in each layer norm of the encoder."""


class RecVAE(HistoryAutoencoder):
    """A deep encoder and a decoder of one layer, trained in turn.

    While the encoder is trained, its state at the beginning of the epoch is part of the prior.
    """

    name = "recvae"
    config_class: ClassVar[type[ModelConfig]] = RecVAEConfig

    def __init__(
        self, config: RecVAEConfig, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        width = config.width
        self.encoder_table = nn.Parameter(torch.empty(num_items, width))
        self.encoder_bias = nn.Parameter(torch.empty(width))
        self.encoder = nn.ModuleList(Layer(width, width) for _ in range(_NUM_HIDDEN))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(_NUM_HIDDEN + 1))
        self.code = Layer(width, 2 * config.latent)
        self.output = Layer(config.latent, num_items)

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: RecVAEConfig) -> dict[str, Setting]:
        """Return the authors' batches and steps for 50,000 users and more.

        Fewer users have small batches at a rate that falls to 0, or averaged weights if a constant
        rate is requested.
        """
        adam = {"beta1": 0.9, "beta2": 0.999}
        if size.num_users >= _MANY_USERS:
            shape: dict[str, Setting] = {"epochs": 50, "batch_size": 500, "eval_every": 1}
            return shape | adam | {"learning_rate": 0.0005, "patience": 5}
        if size.constant_rate:
            batch_size = small_batch(size.num_users, 1 << 8)
            shape = {"epochs": 200, "batch_size": batch_size, "eval_every": 2}
            return shape | adam | {"learning_rate": 0.001, "ema": 0.999, "patience": 5}
        _, epochs, largest, rate = next(row for row in _FALLING if size.num_users < row[0])
        batch_size = small_batch(size.num_users, largest)
        shape = {"epochs": epochs, "batch_size": batch_size, "eval_every": 5, "patience": 0}
        return shape | adam | {"learning_rate": rate, "learning_rate_schedule": "cosine"}

    def training_bytes(self, device: torch.device) -> int:
        """Return the bytes of any neural model, plus the copy of the encoder in the prior."""
        encoder = self._encoder_weights().values()
        return super().training_bytes(device) + sum(weight.nbytes for weight in encoder)

    def make_batches(
        self,
        histories: HistoryTensors,
        *,
        batch_size: int,
        seed: int,
        padded: bool = False,
        parts: Shards = SINGLE,
    ) -> Batches:
        one_pass = HistoryBatches(histories, batch_size, seed, padded=padded, parts=parts)
        return AlternatingBatches(one_pass, self.config.encoder_passes)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        output = list(self.output.parameters())
        others = [one for name, one in self.named_parameters() if not name.startswith("output.")]
        return {"encoder": others, "decoder": output}

    def updated_by(self, batch: Batch) -> str:
        assert isinstance(batch, PhaseBatch)
        return batch.phase

    def reset_parameters(self, seed: int) -> None:
        """Fill weights and biases by U(-1, 1) / sqrt(inputs), like PyTorch, norms by 1 and 0."""
        inputs = self.num_items
        for number, (name, parameter) in enumerate(self.named_parameters()):
            if name.startswith("norms."):
                parameter.data.fill_(1.0 if name.endswith(".weight") else 0.0)
                continue
            if parameter.dim() == 2:  # a bias comes after its weight, and has its bound
                inputs = self.num_items if name == "encoder_table" else parameter.shape[1]
            key = stream_key(seed, Purpose.INITIALISE, number)
            fill_uniform_(parameter, key, 1.0 / math.sqrt(inputs))

    def forward(self, batch: PhaseBatch) -> Tensor:
        """Return the batch's loss: mean over users of ``-log likelihood + weight KL``.

        The decoder's phase leaves the KL term out, because no updated weight changes it.
        """
        histories, trains_encoder = batch.histories, batch.phase == "encoder"
        if batch.begins_epoch:
            weights = self._encoder_weights()
            # `frozen_encoder` is part of a saved state: a training may be resumed within the epoch.
            self.frozen_encoder = {
                name: weight.detach().clone() for name, weight in weights.items()
            }
        dropout = self.config.dropout if self.training and trains_encoder else 0.0
        key = from_row(batch.dropout_key, batch.first_row)
        # The decoder's phase needs no gradient of the encoder, and no dropout, as in the authors'
        # code.
        with torch.set_grad_enabled(trains_encoder and torch.is_grad_enabled()):
            code_BC = self._encode(histories, dropout, key)
            noise_BL = self._noise(batch, code_BC)
            latent_BL, _ = reparameterize(code_BC, noise_BL)
        loss = self._likelihood_loss(latent_BL, batch, trains_output=not trains_encoder)
        if not trains_encoder:
            return loss
        with torch.no_grad():
            earlier_BC = self._encode(histories, weights=self.frozen_encoder)
        weight_B = self._kl_weights(batch, self.config.kl_weight, code_BC.dtype)
        divergence = divergence_from_mixture(latent_BL, code_BC, noise_BL, earlier_BC, weight_B)
        return loss + divergence

    def _encoder_weights(self) -> dict[str, Tensor]:
        named = self.named_parameters()
        return {name: weight for name, weight in named if not name.startswith("output.")}

    def _encode(
        self,
        histories: HistoryTensors,
        dropout: float = 0.0,
        key: int | Tensor = 0,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return means, then log-variances [B, C] of the latent vector."""
        weights = weights or self._encoder_weights()
        return self.code_of(self._bag(weights["encoder_table"], histories, dropout, key), weights)

    def code_of(self, first_BH: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return what `_encode` returns, from the histories' summed, normalised table rows.

        ``h_k = norm(swish(W_k h_(k-1) + h_1 + ... + h_(k-1)))`` for the layers after the first.
        """
        weights = weights or self._encoder_weights()
        dtype = self.compute_dtype if self.training else None

        def layer(name: str, hidden_BH: Tensor) -> Tensor:
            weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            return dense(hidden_BH, weight, bias, compute_dtype=dtype).to(weight.dtype)

        def activated(value_BH: Tensor, number: int) -> Tensor:
            scale, shift = weights[f"norms.{number}.weight"], weights[f"norms.{number}.bias"]
            return F.layer_norm(F.silu(value_BH), scale.shape, scale, shift, _NORM_EPS)

        hidden_BH = sum_BH = activated(first_BH + weights["encoder_bias"], 0)
        for number in range(_NUM_HIDDEN):
            hidden_BH = activated(layer(f"encoder.{number}", hidden_BH) + sum_BH, number + 1)
            sum_BH = sum_BH + hidden_BH
        return layer("code", hidden_BH)

"""Mult-VAE and Mult-DAE (Liang et al. 2018, arXiv 1802.05814).

Shape suffixes: B users, D last hidden width, L latent width, C width of the code.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from foretaste.models.config import ModelConfig, Setting, TrainingSize
from foretaste.models.layers import Layer
from foretaste.models.vae.autoencoder import HistoryAutoencoder
from foretaste.models.vae.batches import HistoryBatch, small_batch
from foretaste.models.vae.config import MANY_USERS, DAEConfig, VAEConfig
from foretaste.ops.dense import Activation, activate, dense
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import Purpose, fill_normal_, fill_uniform_, from_row, stream_key
from foretaste.ops.reparameterize import reparameterize

_BIAS_STD = 0.001

# With a falling rate 20 epochs lost .005 of NDCG@100. On steam 60 epochs gained nothing over 45, on
# lastfm 100 nothing over 60.
_UPDATES = 1200
_FEWEST_EPOCHS, _MOST_EPOCHS = 45, 60


class MultVAE(HistoryAutoencoder):
    """A variational autoencoder over histories: I - hidden - latent - hidden - I."""

    name = "vae"
    config_class: ClassVar[type[ModelConfig]] = VAEConfig

    code_parts = 2
    """Latent widths that the encoder gives: means and log-variances."""

    code_activation: Activation | None = None

    def __init__(
        self,
        config: VAEConfig | DAEConfig,
        num_users: int,
        num_items: int,
        users: range | None = None,
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        code_width = self.code_parts * config.latent
        encoder = [*config.hidden, code_width]
        decoder = [config.latent, *reversed(config.hidden)]
        self.encoder_table = nn.Parameter(torch.empty(num_items, config.hidden[0]))
        self.encoder_bias = nn.Parameter(torch.empty(config.hidden[0]))
        self.encoder = nn.ModuleList(Layer(a, b) for a, b in pairwise(encoder))
        self.decoder = nn.ModuleList(Layer(a, b) for a, b in pairwise(decoder))
        self.output = Layer(decoder[-1], num_items)

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: VAEConfig | DAEConfig) -> dict[str, Setting]:
        """Return NVIDIA's settings from 100,000 users on, else small batches at a falling rate.

        With a constant rate there, steps are smaller and weights are averaged.
        """
        if size.num_users >= MANY_USERS:
            shape: dict[str, Setting] = {"epochs": 400, "batch_size": 24_576, "eval_every": 10}
            adam = {"learning_rate": 0.004, "beta1": 0.9, "beta2": 0.9}
            return shape | adam | {"patience": 5}
        adam = {"beta1": 0.9, "beta2": 0.999}
        if size.constant_rate:
            batch_size = small_batch(size.num_users, 1 << 13)
            shape = {"epochs": 200, "batch_size": batch_size, "eval_every": 5}
            return shape | adam | {"learning_rate": 0.001, "ema": 0.999, "patience": 5}
        batch_size = small_batch(size.num_users, 1 << 8)
        updates_per_epoch = -(-size.num_users // (size.batch_size or batch_size))
        epochs = min(max(_UPDATES // updates_per_epoch, _FEWEST_EPOCHS), _MOST_EPOCHS)
        shape = {"epochs": epochs, "batch_size": batch_size, "eval_every": 5, "patience": 0}
        return shape | adam | {"learning_rate": 0.004, "learning_rate_schedule": "cosine"}

    def reset_parameters(self, seed: int) -> None:
        """Fill weights Glorot-uniformly, and biases by N(0, 0.001²)."""
        for number, parameter in enumerate(self.parameters()):
            key = stream_key(seed, Purpose.INITIALISE, number)
            if parameter.dim() == 1:
                fill_normal_(parameter, key, _BIAS_STD)
                continue
            fill_uniform_(parameter, key, math.sqrt(6.0 / sum(parameter.shape)))

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """Return the weight of the KL term: a constant ``kl_weight`` for each item of a history, or
        ``beta``, which is ``min(anneal_cap, update / anneal_steps)``."""
        kl_weight = self.config.kl_weight_for(self.num_users)
        if kl_weight is not None:
            return {"kl_weight": kl_weight}
        cap, steps = self.config.annealing(updates_per_epoch)
        return {"beta": min(cap, update / steps)}

    def forward(self, batch: HistoryBatch) -> Tensor:
        """Return the batch's loss: mean of ``-log likelihood + weight KL``, and L2 if asked."""
        dropout = self.config.dropout if self.training else 0.0
        key = from_row(batch.dropout_key, batch.first_row)
        code_BC = self._encode(batch.histories, dropout, key)
        latent_BL, divergence = self._latent(code_BC, batch)
        loss = self._likelihood_loss(self._decode(latent_BL), batch)
        if divergence is not None:
            loss = loss + divergence
        if self.config.l2 > 0.0:
            # Slices and ranks add up: each has its users' share of the penalty.
            l2 = self.config.l2 * len(batch.histories) / batch.num_samples
            loss = loss + l2 * self._squared_norm()
        return loss

    def _squared_norm(self) -> Tensor:
        """Return the squared norm of all weight matrices."""
        total = self.encoder_table.new_zeros(())
        for parameter in self.parameters():
            if parameter.dim() == 2:
                total += parameter.square().sum()
        return total

    def _latent(self, code_BC: Tensor, batch: HistoryBatch) -> tuple[Tensor, Tensor | None]:
        """Return the latent vector [B, L], noisy in training, and the weighted KL divergence."""
        code_BC = code_BC.to(self.encoder_table.dtype)
        noise_BL = self._noise(batch, code_BC)
        kl_weight = self.config.kl_weight_for(self.num_users)
        if kl_weight is not None:
            weight_B = self._kl_weights(batch, kl_weight, code_BC.dtype)
            return reparameterize(code_BC, noise_BL, weight_B)
        # The weight is annealed as in the paper and in NVIDIA's code: min(cap, update / steps) for
        # the mean over users. The weight follows updates, so another batch size anneals at another
        # pace over the data.
        latent_BL, divergence = reparameterize(code_BC, noise_BL)
        cap, steps = self.config.annealing(batch.updates_per_epoch)
        if cap == 0.0:
            return latent_BL, None
        beta = (batch.update / steps).clamp(max=cap)
        return latent_BL, beta / batch.num_samples * divergence

    def _encode(
        self, histories: HistoryTensors, dropout: float = 0.0, key: int | Tensor = 0
    ) -> Tensor:
        """Return the latent means, then log-variances [B, C]; for the DAE the vector itself."""
        return self.code_of(self._bag(self.encoder_table, histories, dropout, key))

    def code_of(self, first_BH: Tensor) -> Tensor:
        activation, dtype = self.config.activation, self.compute_dtype if self.training else None
        # The first layer is a sum of table rows: histories are sparse, and no [B, I] matrix is
        # made.
        hidden = activate(first_BH, self.encoder_bias, activation, dtype)
        *middle, last = self.encoder
        for layer in middle:
            hidden = self._dense(layer, hidden, activation)
        return self._dense(last, hidden, self.code_activation)

    def _decode(self, latent_BL: Tensor) -> Tensor:
        """Return the last hidden layer [B, D]."""
        hidden = latent_BL
        for layer in self.decoder:
            hidden = self._dense(layer, hidden, self.config.activation)
        return hidden

    def _dense(self, layer: nn.Module, hidden: Tensor, activation: Activation | None) -> Tensor:
        assert isinstance(layer, nn.Linear)
        dtype = self.compute_dtype if self.training else None
        return dense(hidden, layer.weight, layer.bias, activation, compute_dtype=dtype)


class MultDAE(MultVAE):
    """The same network with a deterministic latent vector and no KL term."""

    name = "dae"
    config_class = DAEConfig
    code_parts = 1

    def __init__(
        self, config: DAEConfig, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        self.code_activation = config.activation

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        return {}

    def _latent(self, code_BC: Tensor, batch: HistoryBatch) -> tuple[Tensor, None]:
        return code_BC, None

"""Mult-VAE and Mult-DAE (Liang et al. 2018, arXiv 1802.05814).

Shape suffixes: B users, I items, H first hidden width, D last hidden width, L latent width,
C width of the code, K candidates per user, c users of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from foretaste.models.base import NeuralModel, TrainingSize, UserState, power_of_two
from foretaste.models.config import ModelConfig, SamplingConfig, Sharing
from foretaste.models.share import Share
from foretaste.models.vae.batches import HistoryBatch, HistoryBatches
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.ops import embedding_bag, softmax_loss
from foretaste.ops.dense import Activation, activated, dense, linear
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import (
    Purpose,
    fill_normal_,
    fill_uniform_,
    from_row,
    normals,
    stream_key,
    stream_keys,
)
from foretaste.ops.ranks import ALONE
from foretaste.ops.reparameterize import reparameterize
from foretaste.ops.softmax_loss.exponentials import ItemShards
from foretaste.ops.softmax_loss.sampled import sampled_loss

_BIAS_STD = 0.001
_GATHERED_AT_ONCE = 1 << 24


class _Layer(nn.Linear):
    """A layer whose weights nobody else fills, and which may have no rows."""

    def reset_parameters(self) -> None:
        """Left to the model."""


class MultVAE(NeuralModel):
    """A variational autoencoder over histories: I - hidden - latent - hidden - I."""

    name = "vae"
    config_class: ClassVar[type[ModelConfig]] = VAEConfig
    item_rows = ("encoder_table", "output.weight", "output.bias")

    code_parts = 2
    """Latent widths that the encoder gives: means and log-variances."""

    code_activation: Activation | None = None

    def __init__(
        self,
        config: VAEConfig | DAEConfig,
        num_users: int,
        num_items: int,
        share: Share | None = None,
    ) -> None:
        super().__init__(config, num_users, num_items, share)
        num_rows = len(self.share.items)
        code_width = self.code_parts * config.latent
        encoder = [*config.hidden, code_width]
        decoder = [config.latent, *reversed(config.hidden)]
        self.encoder_table = nn.Parameter(torch.empty(num_rows, config.hidden[0]))
        self.encoder_bias = nn.Parameter(torch.empty(config.hidden[0]))
        self.encoder = nn.ModuleList(_Layer(a, b) for a, b in pairwise(encoder))
        self.decoder = nn.ModuleList(_Layer(a, b) for a, b in pairwise(decoder))
        self.output = _Layer(decoder[-1], num_rows)

    @classmethod
    def auto_settings(cls, size: TrainingSize, sampling: SamplingConfig | None) -> dict[str, Any]:
        """NVIDIA's settings from 100,000 users on; smaller batches and steps below.

        From 200,000 items on, what a rank would keep of all items is gigabytes: 16 bytes for each
        of 600 columns, twice. Then the items are shared out.
        """
        parallel: Sharing = "items" if size.num_items >= 200_000 else "data"
        if size.num_users >= 100_000:
            shape: dict[str, Any] = {"epochs": 400, "batch_size": 24_576, "eval_every": 10}
            adam = {"learning_rate": 0.004, "beta1": 0.9, "beta2": 0.9}
        else:
            batch_size = power_of_two(size.num_users // 10, 1 << 6, 1 << 13)
            shape = {"epochs": 200, "batch_size": batch_size, "eval_every": 5}
            adam = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999}
        return shape | adam | {"patience": 5, "parallel": parallel}

    def make_batches(
        self,
        histories: HistoryTensors,
        *,
        batch_size: int,
        seed: int,
        sampling: SamplingConfig | None = None,
        padded: bool = False,
    ) -> HistoryBatches:
        ranks = ALONE if self.share.shards_items else self.share.ranks
        placed = self._placed(histories)
        return HistoryBatches(placed, batch_size, seed, padded=padded, ranks=ranks)

    def reset_parameters(self, seed: int) -> None:
        """Weights Glorot-uniform, biases N(0, 0.001)."""
        for number, (name, parameter) in enumerate(self.named_parameters()):
            key = stream_key(seed, Purpose.INITIALISE, number)
            rows = self.rows_of(name)
            first_row = rows.start if rows else 0
            if parameter.dim() == 1:
                fill_normal_(parameter, key, _BIAS_STD, first_row)
                continue
            num_rows = self.num_items if name in self.item_rows else len(parameter)
            bound = math.sqrt(6.0 / (num_rows + parameter.shape[1]))
            fill_uniform_(parameter, key, bound, first_row)

    def summed_parameters(self) -> list[nn.Parameter]:
        """None where items are sharded: the layers between are computed alike on all ranks."""
        return [] if self.share.shards_items else super().summed_parameters()

    def waits_for_device(self, num_samples: int) -> bool:
        """True without the Triton kernels, which alone take batches padded to one size."""
        if self.config.sampled_softmax is not None or self.implementation == "chunked":
            return True
        table_dtype = self.encoder_table.dtype
        return not (
            embedding_bag.serves_triton(self.device, table_dtype)
            and softmax_loss.serves_triton(self.device, self.compute_dtype or table_dtype)
        )

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """``beta``, the weight of the KL term: ``min(anneal_cap, update / anneal_steps)``."""
        anneal_steps = self._anneal_steps(updates_per_epoch)
        return {"beta": min(self.config.anneal_cap, update / anneal_steps)}

    def forward(self, batch: HistoryBatch) -> Tensor:
        """The batch's loss: mean over users of ``-log likelihood + beta KL``, plus L2 if asked."""
        dropout = self.config.dropout if self.training else 0.0
        key = from_row(batch.dropout_key, batch.first_row)
        code_BC = self._encode(batch.histories, dropout, key)
        latent_BL, divergence = self._latent(code_BC, batch)
        likelihood: Callable[..., Tensor] = softmax_loss.loss
        if self.training and self.config.sampled_softmax is not None:
            likelihood = partial(
                sampled_loss,
                num_samples=self.config.sampled_softmax,
                key=stream_keys(batch.dropout_key, Purpose.NEGATIVES),
                ranks=ALONE if self.share.shards_items else self.share.ranks,
            )
        loss = likelihood(
            self._decode(latent_BL),
            self.output.weight,
            self.output.bias,
            batch.histories,
            scale=1.0 / batch.num_samples,
            compute_dtype=self.compute_dtype,
            buffers=self._memory,
            implementation=self.implementation,
            shards=self._item_shards,
        )
        if divergence is not None:
            loss = loss + self._counted_once(divergence)
        if self.config.l2 > 0.0:
            l2 = self.config.l2 * len(batch.histories) / batch.num_samples
            loss = loss + l2 * self._squared_norm()
        return loss

    @property
    def _item_shards(self) -> ItemShards | None:
        if not self.share.shards_items:
            return None
        return ItemShards(self.share.ranks, self.share.most_items)

    def _squared_norm(self) -> Tensor:
        """Of all weight matrices."""
        total = self.encoder_table.new_zeros(())
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                square = parameter.square().sum()
                total += square if name in self.item_rows else self._counted_once(square)
        return total

    def _counted_once(self, value: Tensor) -> Tensor:
        """The ``value`` that ranks have alike where items are sharded, but zero after the first.

        So losses add up over the ranks; the gradient is whole on each of them.
        """
        if self.share.ranks.is_first or not self.share.shards_items:
            return value
        return value - value.detach()

    def _latent(self, code_BC: Tensor, batch: HistoryBatch) -> tuple[Tensor, Tensor | None]:
        """The latent vector [B, L], reparameterized with noise in training, and beta KL."""
        code_BC = code_BC.to(self.encoder_table.dtype)
        noise_BL = code_BC.new_zeros(len(code_BC), self.config.latent)
        if self.training:
            # two columns of a row from each word
            row_B1 = torch.arange(len(code_BC), device=self.device)[:, None]
            column_W = torch.arange(-(-self.config.latent // 2), device=self.device)
            key = from_row(batch.noise_key, batch.first_row)
            noise_BW2 = normals(key, (row_B1 << 32) + column_W)
            noise_BL = noise_BW2.flatten(1)[:, : self.config.latent]
        latent_BL, divergence = reparameterize(code_BC, noise_BL)
        if self.config.anneal_cap == 0.0:
            return latent_BL, None
        anneal_steps = self._anneal_steps(batch.updates_per_epoch)
        beta = (batch.update / anneal_steps).clamp(max=self.config.anneal_cap)
        return latent_BL, beta / batch.num_samples * divergence

    def _anneal_steps(self, updates_per_epoch: int) -> float:
        """Updates that would take the KL weight to 1, were it not capped."""
        steps: float = self.config.anneal_steps
        if self.config.anneal_epochs is not None:
            steps = self.config.anneal_epochs * updates_per_epoch
        return steps

    def item_vectors(self) -> Tensor:
        return self.output.weight

    def _encode(
        self, histories: HistoryTensors, dropout: float = 0.0, key: int | Tensor = 0
    ) -> Tensor:
        """Means, then log-variances [B, C] of the latent vector; the DAE's vector itself."""
        first_BH = embedding_bag.encode(
            self.encoder_table,
            histories,
            dropout=dropout,
            key=key,
            buffers=self._memory,
            implementation="auto" if self.implementation == "compiled" else self.implementation,
        )
        if self.share.shards_items:
            # in place: what comes back is whole on every rank
            self.share.ranks.sum_(first_BH.detach())
        activation, dtype = self.config.activation, self.compute_dtype if self.training else None
        hidden = activated(first_BH, self.encoder_bias, activation, dtype)
        *middle, last = self.encoder
        for layer in middle:
            hidden = self._dense(layer, hidden, activation)
        return self._dense(last, hidden, self.code_activation)

    def _decode(self, latent_BL: Tensor) -> Tensor:
        """The last hidden layer [B, D]; the output layer belongs to whoever needs its logits."""
        hidden = latent_BL
        for layer in self.decoder:
            hidden = self._dense(layer, hidden, self.config.activation)
        return hidden

    def _dense(self, layer: nn.Module, hidden: Tensor, activation: Activation | None) -> Tensor:
        assert isinstance(layer, nn.Linear)
        dtype = self.compute_dtype if self.training else None
        return dense(hidden, layer.weight, layer.bias, activation, compute_dtype=dtype)

    def user_state(self, user_index_B: Tensor, histories: HistoryTensors) -> UserState:
        return super().user_state(user_index_B, self._placed(histories))

    def fold_in(self, histories: HistoryTensors) -> UserState:
        return super().fold_in(self._placed(histories))

    def _placed(self, histories: HistoryTensors) -> HistoryTensors:
        return histories.among(self.share.ranks) if self.share.shards_items else histories

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor]:
        return self._new_users(histories)

    @torch.no_grad()
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        return (self._encode(histories)[:, : self.config.latent],)

    def _score_catalogue(self, state: UserState) -> Tensor:
        return linear(self._decoded(state), self.output.weight, self.output.bias)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        hidden_BD = self._decoded(state)
        scores_BK = self.output.bias[item_index_BK]
        gathered_each = max(1, item_index_BK.shape[1] * hidden_BD.shape[1])
        rows_at_once = max(1, _GATHERED_AT_ONCE // gathered_each)
        for start in range(0, len(state), rows_at_once):
            rows = slice(start, start + rows_at_once)
            weight_cKD = self.output.weight[item_index_BK[rows]]
            scores_BK[rows] += torch.bmm(weight_cKD, hidden_BD[rows, :, None]).squeeze(2)
        return scores_BK

    def _decoded(self, state: UserState) -> Tensor:
        (latent_BL,) = state.parts
        assert isinstance(latent_BL, Tensor)
        return self._decode(latent_BL)


class MultDAE(MultVAE):
    """The same network with a deterministic latent vector and no KL term."""

    name = "dae"
    config_class = DAEConfig
    code_parts = 1

    def __init__(
        self, config: DAEConfig, num_users: int, num_items: int, share: Share | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, share)
        self.code_activation = config.activation

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        return {}

    def _latent(self, code_BC: Tensor, batch: HistoryBatch) -> tuple[Tensor, None]:
        return code_BC, None

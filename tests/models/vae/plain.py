"""Mult-VAE and Mult-DAE in the form of Liang et al.: dense rows in, log-softmax over items out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.models.vae.batches import HistoryBatch
from foretaste.models.vae.config import VAEConfig
from foretaste.models.vae.model import MultVAE
from foretaste.ops.random import hash_words, normals


class PlainVAE(nn.Module):
    """The network of a `MultVAE` with weights of its own in float64."""

    def __init__(self, model: MultVAE) -> None:
        super().__init__()
        self.config = model.config
        self.is_variational = isinstance(model.config, VAEConfig)
        for name, parameter in model.named_parameters():
            copy = nn.Parameter(parameter.detach().double().clone())
            self.register_parameter(name.replace(".", "_"), copy)
        self.depth = len(model.config.hidden)

    def loss(self, batch: HistoryBatch, *, training: bool) -> Tensor:
        """Mean over users of the negative evidence lower bound, plus L2."""
        seen_BI = batch.histories.to_dense().double()
        hidden = F.normalize(seen_BI)
        if training and self.config.dropout:
            hidden[seen_BI > 0] *= kept_entries(batch, self.config.dropout)
        hidden = self._activate(F.linear(hidden, self.encoder_table.T, self.encoder_bias))
        for number in range(self.depth - 1):
            hidden = self._activate(self._linear("encoder", number, hidden))
        latent = code = self._linear("encoder", self.depth - 1, hidden)
        divergence_B = torch.zeros(len(seen_BI), dtype=torch.float64)
        if self.is_variational:
            mean, log_variance = code[:, : self.config.latent], code[:, self.config.latent :]
            posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
            prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
            divergence_B = torch.distributions.kl_divergence(posterior, prior).sum(1)
            noise = latent_noise(batch, self.config.latent)
            latent = mean + noise * posterior.stddev * training
        else:
            latent = self._activate(code)
        for number in range(self.depth):
            latent = self._activate(self._linear("decoder", number, latent))
        logits_BI = F.linear(latent, self.output_weight, self.output_bias)
        likelihood = (F.log_softmax(logits_BI, dim=1) * seen_BI).sum()
        divergence = (self.kl_weight(batch) * divergence_B).sum()
        loss = (divergence - likelihood) / len(seen_BI)
        matrices = (parameter for parameter in self.parameters() if parameter.dim() == 2)
        return loss + self.config.l2 * sum(matrix.pow(2).sum() for matrix in matrices)

    def kl_weight(self, batch: HistoryBatch) -> float | Tensor:
        if not self.is_variational:
            return 0.0
        cap, steps, epochs = (
            getattr(self.config, name) for name in ("anneal_cap", "anneal_steps", "anneal_epochs")
        )
        if (cap, steps, epochs) == (None, None, None):
            weight = 0.005 if self.config.kl_weight == "auto" else self.config.kl_weight
            return weight * batch.histories.lengths()
        done = batch.update.item() / (steps or 15_000)
        if epochs is not None:
            done = batch.update.item() / batch.updates_per_epoch / epochs
        return min(0.1 if cap is None else cap, done)

    def _linear(self, part: str, number: int, hidden: Tensor) -> Tensor:
        weight, bias = (getattr(self, f"{part}_{number}_{name}") for name in ("weight", "bias"))
        return F.linear(hidden, weight, bias)

    def _activate(self, hidden: Tensor) -> Tensor:
        return {"tanh": torch.tanh, "relu": F.relu}[self.config.activation](hidden)


def kept_entries(batch: HistoryBatch, dropout: float) -> Tensor:
    """Dropout of the entries, row by row: four to a word."""
    threshold = round(dropout * 65536)
    kept = []
    for row, length in enumerate(batch.histories.lengths().tolist(), int(batch.first_row)):
        entry = torch.arange(length)
        words = hash_words(batch.dropout_key, (row << 32) + entry // 4) >> (16 * (entry % 4))
        kept.append((words & 0xFFFF).ge(threshold).double() / (1 - threshold / 65536))
    return torch.cat(kept)


def latent_noise(batch: HistoryBatch, latent: int) -> Tensor:
    """Noise of the latent vectors, row by row: two values to a word."""
    row = torch.arange(len(batch.histories))[:, None] + batch.first_row
    pairs = normals(batch.noise_key, (row << 32) + torch.arange(latent))
    return pairs.flatten(1)[:, :latent].double()

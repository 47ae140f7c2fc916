"""Mult-VAE in the form of most ports, for measurements beside ours.

Dense 0/1 rows in, ``log_softmax`` over [B, I] out, fused Adam. Rows are made dense on the device,
inside the clock: ports make them on the host, which is slower.

Shape suffixes: B users, I items, L latent width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.bench.measure import time_call
from foretaste.models.vae.config import VAEConfig
from foretaste.models.vae.model import MultVAE
from foretaste.ops.histories import HistoryTensors
from foretaste.training.auto import TrainingPlan
from foretaste.training.optimizer import adam


class PlainVAE(nn.Module):
    """The network on dense rows."""

    def __init__(self, config: VAEConfig, num_items: int) -> None:
        super().__init__()
        self.config = config
        self.num_items = num_items
        encoder = [num_items, *config.hidden, 2 * config.latent]
        decoder = [config.latent, *reversed(config.hidden), num_items]
        self.encoder = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(encoder))
        self.decoder = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(decoder))
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.normal_(parameter, std=0.001)

    def forward(self, rows_BI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [B, I], and mean and log-variance [B, L] of the latent vector."""
        hidden = F.dropout(F.normalize(rows_BI), self.config.dropout, self.training)
        mean_BL, log_variance_BL = self._through(self.encoder, hidden).chunk(2, dim=1)
        latent_BL = mean_BL
        if self.training:
            noise_BL = torch.randn_like(mean_BL)
            latent_BL = mean_BL + noise_BL * torch.exp(0.5 * log_variance_BL)
        return self._through(self.decoder, latent_BL), mean_BL, log_variance_BL

    def loss(self, rows_BI: Tensor, kl_weight: float) -> Tensor:
        """Mean over users of minus the log-likelihood and the weighted KL term."""
        logits_BI, mean_BL, log_variance_BL = self.forward(rows_BI)
        likelihood_B = (F.log_softmax(logits_BI.float(), dim=1) * rows_BI).sum(dim=1)
        kl_B = 0.5 * (mean_BL.square() + log_variance_BL.exp() - log_variance_BL - 1.0).sum(dim=1)
        return (kl_weight * kl_B - likelihood_B).mean()

    def _through(self, layers: nn.ModuleList, hidden: Tensor) -> Tensor:
        """Apply all layers with the activation between them."""
        activate = torch.tanh if self.config.activation == "tanh" else torch.relu
        for layer in layers[:-1]:
            hidden = activate(layer(hidden))
        result: Tensor = layers[-1](hidden)
        return result

    @classmethod
    @torch.no_grad()
    def of(cls, model: MultVAE) -> PlainVAE:
        """The plain network with our weights, on their device."""
        assert isinstance(model.config, VAEConfig)
        plain = cls(model.config, model.num_items).to(model.device)
        for parameter, ours in plain.beside(model):
            parameter.copy_(ours)
        return plain

    def beside(self, model: MultVAE) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter with our corresponding one."""
        first, *encoder = cast(Iterable[nn.Linear], self.encoder)
        yield from ((first.weight, model.encoder_table.T), (first.bias, model.encoder_bias))
        ours = (*model.encoder, *model.decoder, model.output)
        for layer, other in zip((*encoder, *self.decoder), ours, strict=True):
            yield from zip(layer.parameters(), other.parameters(), strict=True)


class PlainVAETraining:
    """Epochs of the plain loop."""

    def __init__(
        self,
        config: VAEConfig,
        histories: HistoryTensors,
        plan: TrainingPlan,
        *,
        chunk: int | None = None,
        precision: str = "fp32",
    ) -> None:
        self.config = config
        self.histories = histories
        self.device = histories.device
        self.batch_size = plan.batch_size
        self.chunk = min(chunk or plan.batch_size, plan.batch_size)
        self.precision = precision
        self.num_updates = 0
        torch.manual_seed(plan.seed)
        self.model = PlainVAE(config, histories.num_items).to(self.device)
        self.optimizer = adam(self.model.parameters(), plan)

    @property
    def num_samples(self) -> int:
        return len(self.histories)

    def epoch(self) -> float:
        """Seconds of one pass over the users in random order."""
        self.model.train()
        return time_call(self._epoch, self.device)

    def step(self, user_B: Tensor) -> Tensor:
        """One update on these users; returns the mean loss."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        cap, steps = self.config.annealing(-(-len(self.histories) // self.batch_size))
        kl_weight = min(cap, self.num_updates / steps)
        for part_B in torch.split(user_B, self.chunk):
            rows_BI = self.histories.rows(part_B).to_dense()
            with self._autocast():
                loss = self.model.loss(rows_BI, kl_weight) * (len(part_B) / len(user_B))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.optimizer.step()
        self.num_updates += 1
        return total

    def _epoch(self) -> float:
        total = torch.zeros((), device=self.device)
        order = torch.randperm(len(self.histories), device=self.device)
        for user_B in torch.split(order, self.batch_size):
            total += self.step(user_B)
        return total.item()

    def _autocast(self) -> torch.autocast | nullcontext[None]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


class PlainVAERanker:
    """Scores and lists by the plain network with our weights."""

    def __init__(self, model: MultVAE) -> None:
        self.model = PlainVAE.of(model).eval()
        self.num_items = model.num_items

    @torch.no_grad()
    def scores(self, histories: HistoryTensors) -> Tensor:
        """Scores [B, I] of the catalogue, on the device."""
        return self.model.forward(histories.to_dense())[0]

    @torch.no_grad()
    def lists(self, histories: Sequence[Sequence[int]], k: int) -> list[list[int]]:
        """The best ``k`` items of each history without the history's own items, on the host."""
        rows_BI = torch.zeros(len(histories), self.num_items)
        for row, items in enumerate(histories):
            rows_BI[row, items] = 1.0
        rows_BI = rows_BI.to(next(self.model.parameters()).device)
        scores_BI = self.model(rows_BI)[0].masked_fill(rows_BI > 0, float("-inf"))
        lists: list[list[int]] = scores_BI.topk(min(k, self.num_items)).indices.tolist()
        return lists

    @torch.no_grad()
    def rank(self, histories: HistoryTensors, k: int, users_at_once: int) -> Tensor:
        """The best ``k`` items [B, k] of each history without the history's items, on the host."""
        found = []
        for part in _parts(histories, users_at_once):
            rows_BI = part.to_dense()
            scores_BI = self.model(rows_BI)[0].masked_fill(rows_BI > 0, float("-inf"))
            found.append(scores_BI.topk(min(k, self.num_items)).indices.cpu())
        return torch.cat(found)


def _parts(histories: HistoryTensors, size: int) -> Iterator[HistoryTensors]:
    for start in range(0, len(histories), size):
        yield histories[start : start + size]

"""NeuMF in the form of most ports, for measurements beside ours.

Four ``nn.Embedding``, concatenation, ``nn.Linear`` tower with ``nn.Dropout``, binary cross-entropy
with logits, fused Adam, dense gradients. The loop gets every speed-up that leaves it plain: samples
drawn, shuffled and batched on the device before the clock starts, and chunks of the size that it is
fastest with, their gradients added up to the optimizer's batch.

Shape suffixes: S samples, B users, I items, N interactions, K candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.bench.measure import time_call
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.negatives import Complement, sample_negatives
from foretaste.ops.random import Permutation, Purpose, stream_key
from foretaste.training.auto import TrainingPlan
from foretaste.training.optimizer import adam

_CHUNKS = {
    "cpu": (1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16),
    "cuda": (1 << 17, 1 << 18, 1 << 20),
}
"""Numbers of samples at once to try."""
_EMBEDDING_STD = 0.01


class PlainNeuMF(nn.Module):
    """The network, one row per sample."""

    def __init__(self, config: NeuMFConfig, num_users: int, num_items: int) -> None:
        super().__init__()
        width = config.layers[0] // 2
        self.user_factors = nn.Embedding(num_users, config.factors)
        self.item_factors = nn.Embedding(num_items, config.factors)
        self.user_embedding = nn.Embedding(num_users, width)
        self.item_embedding = nn.Embedding(num_items, width)
        for table in (self.user_factors, self.item_factors, self.user_embedding):
            nn.init.normal_(table.weight, std=_EMBEDDING_STD)
        nn.init.normal_(self.item_embedding.weight, std=_EMBEDDING_STD)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(config.layers):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(config.dropout)]
        self.tower = nn.Sequential(*layers)
        self.output = nn.Linear(config.factors + config.layers[-1], 1)

    def forward(self, user_S: Tensor, item_S: Tensor) -> Tensor:
        """Logits of the samples, [S]."""
        product = self.user_factors(user_S) * self.item_factors(item_S)
        joined = torch.cat([self.user_embedding(user_S), self.item_embedding(item_S)], dim=1)
        logits: Tensor = self.output(torch.cat([product, self.tower(joined)], dim=1))
        return logits.squeeze(1)

    @classmethod
    @torch.no_grad()
    def of(cls, model: NeuMF) -> PlainNeuMF:
        """The plain network with our weights, on their device."""
        assert isinstance(model.config, NeuMFConfig)
        plain = cls(model.config, model.num_users, model.num_items).to(model.device)
        for parameter, ours in plain.beside(model):
            parameter.copy_(ours)
        return plain

    def beside(self, model: NeuMF) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter with our corresponding one."""
        for name in ("user_factors", "item_factors", "user_embedding", "item_embedding"):
            yield getattr(self, name).weight, getattr(model, name)
        tower = [layer for layer in self.tower if isinstance(layer, nn.Linear)]
        for layer, other in zip([*tower, self.output], [*model.tower, model.output], strict=True):
            yield from zip(layer.parameters(), other.parameters(), strict=True)


class PlainNeuMFTraining:
    """Epochs of the plain loop."""

    def __init__(
        self,
        config: NeuMFConfig,
        histories: HistoryTensors,
        plan: TrainingPlan,
        *,
        chunk: int | None = None,
        precision: str = "fp32",
    ) -> None:
        self.device = histories.device
        torch.manual_seed(plan.seed)
        self.model = PlainNeuMF(config, len(histories), histories.num_items).to(self.device)
        self.optimizer = adam(self.model.parameters(), plan)
        self.precision = precision
        self.batch_size = plan.batch_size
        self.user_S, self.item_S, self.label_S = drawn_samples(
            histories, config.num_negatives, plan.seed
        )
        self.chunk = min(chunk or self._best_chunk(), self.batch_size)

    @property
    def num_samples(self) -> int:
        return len(self.label_S)

    def epoch(self) -> float:
        """Seconds of one pass over the samples, batch by batch."""
        self.model.train()
        return time_call(self._epoch, self.device)

    def step(self, batch: slice) -> Tensor:
        """One update; returns the batch's mean loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.add_gradients(batch, self.chunk)
        self.optimizer.step()
        return loss

    def add_gradients(self, batch: slice, chunk: int) -> Tensor:
        """Forward and backward of a batch, chunk by chunk; returns its mean loss."""
        total = torch.zeros((), device=self.device)
        num_samples = batch.stop - batch.start
        for part in _slices(batch.start, batch.stop, chunk):
            with self._autocast():
                logits_S = self.model(self.user_S[part], self.item_S[part])
            loss = F.binary_cross_entropy_with_logits(
                logits_S.float(), self.label_S[part], reduction="sum"
            )
            loss = loss / num_samples
            loss.backward()
            total += loss.detach()
        return total

    def _epoch(self) -> float:
        total = torch.zeros((), device=self.device)
        for batch in _slices(0, self.num_samples, self.batch_size):
            total += self.step(batch)
        return total.item()

    def _autocast(self) -> torch.autocast | nullcontext[None]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _best_chunk(self) -> int:
        """The tried chunk size with the fastest batch."""
        most = min(self.batch_size, self.num_samples)
        batch = slice(0, min(most, max(_CHUNKS[self.device.type])))
        cost: dict[int, float] = {}
        for size in sorted({min(size, most) for size in _CHUNKS[self.device.type]}):
            self.add_gradients(slice(0, size), size)
            run = partial(self.add_gradients, batch, size)
            cost[size] = min(time_call(run, self.device) for _ in range(2))
        self.model.zero_grad(set_to_none=True)
        return min(cost, key=lambda size: cost[size])


def drawn_samples(
    histories: HistoryTensors, num_negatives: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Users, items and labels of one epoch's samples, shuffled one by one; int64 and float32."""
    user_N = histories.row_index().int()
    key = stream_key(seed, Purpose.NEGATIVES, 0)
    negative_NK = sample_negatives(Complement.of(histories), user_N, num_negatives, key)
    item_NK = torch.cat([histories.item_index[:, None], negative_NK], dim=1)
    label_NK = torch.zeros(item_NK.shape, device=histories.device)
    label_NK[:, 0] = 1.0
    key = stream_key(seed, Purpose.SHUFFLE, 0)
    order_S = Permutation.keyed(key, item_NK.numel(), histories.device).values()
    user_S = user_N[order_S // item_NK.shape[1]].long()
    return user_S, item_NK.view(-1)[order_S].long(), label_NK.view(-1)[order_S]


class PlainNeuMFRanker:
    """Lists of the best items by the plain network with our weights, pair by pair."""

    def __init__(self, model: NeuMF, pairs_at_once: int | None = None) -> None:
        self.model = PlainNeuMF.of(model).eval()
        self.num_items = model.num_items
        self.device = model.device
        self.pairs_at_once = pairs_at_once or self._best_chunk()

    @torch.no_grad()
    def lists(self, user_index_B: Tensor, histories: HistoryTensors, k: int) -> Tensor:
        """The best ``k`` items [B, k] of each user without the items of the history, on the
        host."""
        at_once = max(1, self.pairs_at_once // self.num_items)
        found = []
        for users in _slices(0, len(user_index_B), at_once):
            logits_BI = self.scores(user_index_B[users])
            seen = histories[users]
            logits_BI[seen.row_index(), seen.item_index.long()] = float("-inf")
            found.append(logits_BI.topk(min(k, self.num_items)).indices.cpu())
        return torch.cat(found)

    @torch.no_grad()
    def scores(self, user_index_B: Tensor) -> Tensor:
        """Logits [B, I] of the catalogue, on the device."""
        user_S = user_index_B.repeat_interleave(self.num_items)
        item_S = torch.arange(self.num_items, device=self.device).repeat(len(user_index_B))
        return self._pairs(user_S, item_S).view(len(user_index_B), self.num_items)

    def _pairs(self, user_S: Tensor, item_S: Tensor) -> Tensor:
        parts = _slices(0, len(user_S), self.pairs_at_once)
        return torch.cat([self.model(user_S[part], item_S[part]) for part in parts])

    def _best_chunk(self) -> int:
        sizes = _CHUNKS[self.device.type]
        users = torch.zeros(max(sizes), dtype=torch.int64, device=self.device)
        items = torch.arange(max(sizes), device=self.device) % self.num_items
        cost: dict[int, float] = {}
        for size in sizes:
            self.pairs_at_once = size
            self._pairs(users[:size], items[:size])
            cost[size] = time_call(lambda: self._pairs(users, items), self.device)
        return min(cost, key=lambda size: cost[size])


def _slices(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))

"""GMF with hundreds of negatives an interaction beside a plain loop, in turns.

    python -m benchmarks.many_negatives --negatives 512

Sampled softmax, each interaction with negatives of its own, users and items of a generated set of
the shape's size. The plain loop draws those again that the user has, by a table of users by items,
gathers with ``nn.Embedding``, multiplies rows of length one, compares with cross-entropy and
steps with fused Adam, in the chunks that it is fastest with. A turn is several updates, one after
another as in a training: after a single one of the other side, an update finds its tables in no
cache.

Shape suffixes: B interactions, K candidates, N negatives, D factors, U users, I items.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste.models.neumf.batches import InteractionBatches
from foretaste.models.neumf.config import GMFConfig
from foretaste.models.neumf.model import GMF
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors

SHAPES = {"ml-1m": (6_040, 3_706, 165), "ml-20m": (138_493, 26_744, 144)}
"""Users, items, and interactions of a user."""
_CHUNKS = (8, 16, 32, 64, 128, 256)
_LEARNING_RATE = 1e-3
_TEMPERATURE = 0.15


class PlainGMF(nn.Module):
    """The network, each interaction's candidates gathered."""

    def __init__(self, histories: HistoryTensors, factors: int) -> None:
        super().__init__()
        num_users, num_items = len(histories), histories.num_items
        self.has_UI = torch.zeros(num_users, num_items, dtype=torch.bool)
        self.has_UI[histories.row_index(), histories.item_index.long()] = True
        self.user, self.item = nn.Embedding(num_users, factors), nn.Embedding(num_items, factors)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=_LEARNING_RATE, fused=True)

    def forward(self, user_B: Tensor, item_BK: Tensor) -> Tensor:
        user_BD, item_BKD = F.normalize(self.user(user_B)), F.normalize(self.item(item_BK), dim=2)
        return torch.bmm(item_BKD, user_BD[:, :, None]).squeeze(2) / _TEMPERATURE

    def draw(self, user_B: Tensor, num_negatives: int) -> Tensor:
        """Items that the users do not have, int64 [B, N]."""
        num_items = self.item.num_embeddings
        item_BN = torch.randint(num_items, (len(user_B), num_negatives))
        again = self.has_UI[user_B[:, None], item_BN].nonzero(as_tuple=True)
        while len(again[0]):
            item_BN[again] = torch.randint(num_items, again[0].shape)
            taken = self.has_UI[user_B[again[0]], item_BN[again]]
            again = (again[0][taken], again[1][taken])
        return item_BN

    def step(self, user_B: Tensor, item_B: Tensor, num_negatives: int, chunk: int) -> None:
        """One update of own negatives, the gradients of its chunks added up."""
        item_BK = torch.cat([item_B[:, None], self.draw(user_B, num_negatives)], dim=1)
        self.optimizer.zero_grad(set_to_none=True)
        for start in range(0, len(user_B), chunk):
            scores_BK = self(user_B[start : start + chunk], item_BK[start : start + chunk])
            label_B = torch.zeros(len(scores_BK), dtype=torch.int64)
            (F.cross_entropy(scores_BK, label_B, reduction="sum") / len(user_B)).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def generated(shape: str, generator: torch.Generator) -> HistoryTensors:
    """Users with as many distinct items each, the same items for some of them."""
    num_users, num_items, length = SHAPES[shape]
    num_users = min(num_users, 20_000)
    item_UL = torch.rand(200, num_items, generator=generator).topk(length).indices.sort(1).values
    item_index = item_UL[torch.arange(num_users) % 200].flatten().int()
    return HistoryTensors(torch.arange(num_users + 1) * length, item_index, num_items)


def seconds(work: Callable[[], None], num_updates: int = 1) -> float:
    """Of one update, on average over so many."""
    since = time.perf_counter()
    for _ in range(num_updates):
        work()
    return (time.perf_counter() - since) / num_updates


def our_steps(
    histories: HistoryTensors, config: GMFConfig, num_interactions: int
) -> Callable[[], None]:
    """Our updates, one for each call, and the batch of each."""
    model = GMF(config, len(histories), histories.num_items)
    model.reset_parameters(1)
    optimizer = torch.optim.Adam(model.parameter_groups()["all"], lr=_LEARNING_RATE, fused=True)
    batch_size = num_interactions * (1 + config.num_negatives)
    batches = model.make_batches(histories, batch_size=batch_size, seed=1)
    coming = batches.epoch(0)
    model.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(next(coming)).backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="ml-1m")
    parser.add_argument("--negatives", type=int, default=512)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--interactions", type=int, default=512, help="of a batch")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--updates", type=int, default=8, help="of a turn")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    resolve_device("cpu")  # keeps freed memory, as in a training, for the plain loop too
    histories = generated(asked.shape, torch.Generator().manual_seed(1))
    config = GMFConfig(factors=asked.factors, negatives=asked.negatives)
    batch_size = asked.interactions * (1 + asked.negatives)
    drawn = next(InteractionBatches(histories, config, batch_size, seed=1).epoch(0))
    user_B, item_B = drawn.user_index_B.long(), drawn.item_index_BK[:, 0].long()
    plain = PlainGMF(histories, asked.factors)
    step = partial(plain.step, user_B, item_B, asked.negatives)
    chunks = [chunk for chunk in _CHUNKS if chunk <= asked.interactions]
    cost = {n: min(seconds(partial(step, n)) for _ in "12") for n in chunks}
    chunk = min(cost, key=lambda n: cost[n])
    work: dict[str, Callable[[], None]] = {
        "plain": partial(step, chunk),
        "foretaste": our_steps(histories, config, asked.interactions),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(asked.repeats + 1):
        for name, one in work.items():
            elapsed_s = seconds(one, asked.updates)
            if turn:  # the first warms up
                times[name].append(elapsed_s)
    for name, found in times.items():
        ratio = statistics.median(b / f for b, f in zip(times["plain"], found, strict=True))
        numbers = {"median_s": statistics.median(found), "min_s": min(found), "ratio": ratio}
        spin_count = os.environ.get("GOMP_SPINCOUNT")
        row = {"name": name, **vars(asked), "chunk": chunk, "spin_count": spin_count, **numbers}
        print(json.dumps(row))


if __name__ == "__main__":
    main()

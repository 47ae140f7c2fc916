"""Bytes and memory of trainings among ranks, by formula.

``python -m benchmarks.scaling_model`` prints the two tables of docs/scaling.md. They are exact, and
a test holds them against the counters of real ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from foretaste.distributed.collectives import union_bytes
from foretaste.models.config import Sharing
from foretaste.models.registry import build_model, config_class

BYTES_PER_PARAMETER = 16
"""Weight, gradient and Adam's two moments in float32."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training, and the way it is shared out."""

    model: str
    num_users: int
    num_items: int
    num_interactions: int
    batch_size: int
    """Samples or users, of all ranks together."""
    negatives: int = 4
    config: Any = None
    """Settings of the model, its defaults for None."""

    @cached_property
    def parameters(self) -> tuple[int, int, int]:
        """Numbers learned that have a row for each user, for each item, and the rest."""
        config = self.config or config_class(self.model)()
        with torch.device("meta"):
            model = build_model(self.model, config, self.num_users, self.num_items)
        users, items, rest = 0, 0, 0
        for name, parameter in model.named_parameters():
            users += parameter.numel() if name in model.user_rows else 0
            items += parameter.numel() if name in model.item_rows else 0
            rest += parameter.numel() if name not in model.user_rows + model.item_rows else 0
        return users, items, rest

    @property
    def parallel(self) -> Sharing:
        """The way it is shared out."""
        found = config_class(self.model).parallel
        assert found is not None
        return found

    def update_bytes(self, touched: tuple[int, int] | None = None, ranks: int = 8) -> int:
        """Payload of a rank's collectives in one update; nothing alone.

        ``touched`` are the distinct items of a batch, and the most that one rank has, where only
        their rows are summed; by default all that a batch could have.
        """
        users, items, rest = self.parameters
        if self.parallel == "data":
            return 4 * (users + items + rest)
        num_bytes, per_row = 4 * items, 4 * items // self.num_items
        index_bytes = union_bytes(self.num_items, self.batch_size)
        if per_row * self.batch_size + index_bytes > num_bytes:
            return num_bytes + 4 * rest
        num_touched = self.batch_size
        if touched is not None:
            num_touched, most = touched
            if 4 * self.batch_size < self.num_items:  # numbers, beside how many each rank has
                index_bytes = 4 * most + 8 * ranks
        return per_row * num_touched + index_bytes + 4 * rest

    def epoch_bytes(self, ranks: int) -> int:
        """Payload once an epoch: the rows of each batch that each rank has."""
        return 8 * (self.num_updates + ranks) if self.parallel == "users" else 0

    def setup_bytes(self, ranks: int) -> int:
        """Payload once a training: how many users each item has, and where a rank's part lies.

        The latter is its number of interactions, gathered and summed.
        """
        return 0 if self.parallel == "data" else 4 * self.num_items + 16 + 8 * ranks

    @property
    def num_samples(self) -> int:
        """Of an epoch."""
        if self.model in ("vae", "dae"):
            return self.num_users
        return self.num_interactions * (1 + self.negatives)

    @property
    def num_updates(self) -> int:
        """Of an epoch."""
        return -(-self.num_samples // self.batch_size)

    def state_bytes(self, users: float) -> float:
        """Weights, gradients and moments of a rank with so many users' rows."""
        of_users, of_items, rest = self.parameters
        return BYTES_PER_PARAMETER * (of_users * users / self.num_users + of_items + rest)

    def data_bytes(self, users: float, interactions: float) -> float:
        """Training data of so many users and interactions in an epoch."""
        if self.parallel == "users":
            # item, user, key of the search for negatives, order, negatives; offset, a flag
            return (4 + 4 + 8 + 8 + 4 * self.negatives) * interactions + (8 + 1) * users
        # item; offset, length, order
        return 4 * interactions + 24 * users

    def rank_bytes(self, ranks: int) -> tuple[float, float]:
        """State and data of a rank that has an equal part."""
        parts = 1 if self.parallel == "data" else ranks
        users, interactions = self.num_users / parts, self.num_interactions / parts
        return self.state_bytes(users), self.data_bytes(users, interactions)


NEUMF = Training(
    model="neumf",
    num_users=138_493,
    num_items=26_744,
    num_interactions=20_000_263,
    batch_size=1_048_576,
)
VAE = Training(
    model="vae",
    num_users=116_677,
    num_items=20_108,
    num_interactions=8_528_759,
    batch_size=24_576,
)
CASES = {
    "NeuMF, users": NEUMF,
    "Mult-VAE, data": VAE,
}


def tables() -> list[str]:
    """The tables of docs/scaling.md, in their order."""
    return [bytes_table(), memory_table()]


def bytes_table() -> str:
    rows = [
        (
            name,
            _mb(case.update_bytes()),
            f"{case.num_updates:,}",
            _mb(case.num_updates * case.update_bytes() + case.epoch_bytes(8)),
        )
        for name, case in CASES.items()
    ]
    return _table(("shared out", "an update", "updates an epoch", "an epoch"), rows)


def memory_table() -> str:
    sizes = (1, 2, 8, 64)
    rows = [(name, *(_mb(sum(case.rank_bytes(n))) for n in sizes)) for name, case in CASES.items()]
    return _table(("shared out", "1 rank", *(f"{n} ranks" for n in sizes[1:])), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in headings[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))


def _mb(number: float) -> str:
    return f"{number / 1e6:,.0f} MB" if number < 1e10 else _gb(number)


def _gb(number: float) -> str:
    return f"{number / 1e9:,.0f} GB"


if __name__ == "__main__":
    print("\n\n".join(tables()))

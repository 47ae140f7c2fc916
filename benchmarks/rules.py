"""Lists of ten with and without a rule and a limit: ``python -m benchmarks.rules``.

An iALS of 64 factors, random items, four of five items that meet the rule. Prints a table of
medians in ms of the processor, measured alternately on one thread.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

import foretaste
from foretaste.in_memory import FittedRecommender

OPTIONS: dict[str, dict[str, Any]] = {
    "without": {},
    "with a rule": {"rules": ["in-stock"]},
    "`max_per` of one column": {"max_per": {"brand": 2}},
    "both": {"rules": ["in-stock"], "max_per": {"brand": 2}},
}
TURNS = 41
LENGTH = 20
"""Items of a history."""


def recommender(num_items: int, rng: np.random.Generator) -> FittedRecommender:
    """A recommender trained on random pairs; each item has at least one."""
    items = np.concatenate([np.arange(num_items), rng.integers(num_items, size=40_000)])
    pairs = {"user_id": rng.integers(2_000, size=len(items)), "item_id": items}
    index = np.arange(num_items)
    columns = {"item_id": index, "stock": index % 5, "brand": rng.integers(500, size=num_items)}
    return foretaste.fit(
        "ials", pa.table(pairs), items=pa.table(columns), factors=64, epochs=1, threads=1
    )


def milliseconds(num_items: int, num_users: int) -> list[str]:
    rng = np.random.default_rng(20)
    fitted = recommender(num_items, rng)
    with TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.toml"
        rules.write_text('in-stock = "stock > 0"')
        fitted.read_rules(rules)
    histories = [rng.integers(num_items, size=LENGTH).tolist() for _ in range(num_users)]
    times: dict[str, list[float]] = {name: [] for name in OPTIONS}
    for _ in range(TURNS):
        for name, options in OPTIONS.items():
            started = time.process_time()
            fitted.recommend_for(histories, 10, **options)
            times[name].append(1000 * (time.process_time() - started))
    return [f"{np.median(times[name]):.3g}" for name in OPTIONS]


def main() -> None:
    print(f"| items | users | {' | '.join(OPTIONS)} |")
    print(f"|---:|---:|{'---:|' * len(OPTIONS)}")
    for num_items in (3_704, 20_000):
        for num_users in (1, 256):
            cells = milliseconds(num_items, num_users)
            print(f"| {num_items:,} | {num_users} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

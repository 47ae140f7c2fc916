"""Preparing a dataset beside pandas as the reference systems write it: rows for docs/results.md.

    python -m benchmarks.plain_prepare --output benchmarks/results/prepare.jsonl
    python -m benchmarks.plain_prepare --shape 692465x53488x100001315 --formats parquet \
        --sides foretaste --memory-limit 2GB --output benchmarks/results/prepare.jsonl

Both sides read the same generated file, filter and split as the references do (leave-one-out with
the last item as test; held-out-users with 10,000 users each, or a tenth), and write training and
held-out parts. Ours also keeps the ids and writes digests and a manifest. Every measurement is a
process of its own, and the sides alternate; the clock starts after the imports, with the file in
the page cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

COLUMNS = ["user_id", "item_id", "rating", "timestamp"]
MIN_INTERACTIONS = 20
MIN_INTERACTIONS_HELD_OUT = 5
MIN_RATING = 4
MAX_HELDOUT_USERS = 10_000
TARGET_SHARE = 0.2
CLOCK = "reading, filtering, splitting, writing; imports aside, the file in the page cache"


def read_plain(source: Path) -> Any:
    import pandas as pd

    return pd.read_csv(source) if source.suffix == ".csv" else pd.read_parquet(source)


def leave_one_out_plain(source: Path, output: Path, num_heldout: int) -> None:
    """Users with 20 ratings; ids in order of appearance; each user's last pair is test."""
    import pandas as pd

    ratings = read_plain(source)
    ratings = ratings.groupby("user_id").filter(lambda rows: len(rows) >= MIN_INTERACTIONS)
    for column in ("user_id", "item_id"):
        ratings[column] = pd.factorize(ratings[column])[0]
    ratings = ratings.sort_values("timestamp")
    pairs = ratings[["user_id", "item_id"]].drop_duplicates()
    by_user = pairs.groupby("user_id")
    test = by_user.tail(1).sort_values("user_id")
    train = by_user.apply(lambda rows: rows.iloc[:-1]).reset_index(level=0)
    train = train.sort_values(["user_id", "item_id"])
    train.to_pickle(output / "train.pickle")
    test.to_pickle(output / "test.pickle")


def held_out_users_plain(source: Path, output: Path, num_heldout: int) -> None:
    """Ratings of 4, users with 5 of them; whole users held out, a fifth of their items target."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    ratings = read_plain(source).drop(columns="timestamp")
    ratings = ratings[ratings["rating"] >= MIN_RATING]
    activity = ratings.groupby("user_id").size()
    ratings = ratings[
        ratings["user_id"].isin(activity.index[activity >= MIN_INTERACTIONS_HELD_OUT])
    ]
    users = rng.permutation(ratings["user_id"].unique())
    held = {
        "validation": users[-2 * num_heldout : -num_heldout],
        "test": users[-num_heldout:],
    }
    train = ratings[ratings["user_id"].isin(users[: -2 * num_heldout])]
    items = train["item_id"].unique()
    item_index = {item: index for index, item in enumerate(items)}
    user_index = {user: index for index, user in enumerate(users)}
    parts = {"train": train}
    for split, chosen in held.items():
        plays = ratings[ratings["user_id"].isin(chosen)]
        plays = plays[plays["item_id"].isin(items)]
        parts[f"{split}_fold_in"], parts[f"{split}_target"] = _split_users(plays, rng)
    for name, rows in parts.items():
        numbered = pd.DataFrame({
            "user_index": rows["user_id"].map(lambda user: user_index[user]),
            "item_index": rows["item_id"].map(lambda item: item_index[item]),
        })  # fmt: skip
        numbered.to_pickle(output / f"{name}.pickle")


def _split_users(plays: Any, rng: Any) -> tuple[Any, Any]:
    """User after user, some of the items as target."""
    import numpy as np
    import pandas as pd

    fold_in, target = [], []
    for _, rows in plays.groupby("user_id"):
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[rng.choice(len(rows), size=int(TARGET_SHARE * len(rows)), replace=False)] = True
        fold_in.append(rows[~chosen])
        target.append(rows[chosen])
    return pd.concat(fold_in), pd.concat(target)


PLAIN: dict[str, Callable[[Path, Path, int], None]] = {
    "leave-one-out": leave_one_out_plain,
    "held-out-users": held_out_users_plain,
}


def settings(protocol: str, num_heldout: int, memory_limit: str | None) -> dict[str, Any]:
    """Our settings that equal the references' processing."""
    own: dict[str, Any] = {"num_heldout_users": num_heldout}
    if protocol == "leave-one-out":
        own = {"validation": "none"}
    return {"protocol": protocol, "filters": "reference", "memory_limit": memory_limit, **own}


def measure_here(
    side: str, source: Path, protocol: str, num_heldout: int, memory_limit: str | None
) -> None:
    """Prepare once in this process, and print seconds and the peak of its memory."""
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    from foretaste.data import PrepareConfig, prepare

    with tempfile.TemporaryDirectory(dir=source.parent) as made:
        with source.open("rb") as file:
            while file.read(1 << 24):
                pass
        started = time.perf_counter()
        if side == "plain":
            PLAIN[protocol](source, Path(made), num_heldout)
        else:
            config = PrepareConfig(**settings(protocol, num_heldout, memory_limit))
            prepare(source, Path(made) / "out", config)
        elapsed_s = time.perf_counter() - started
    print(json.dumps({"elapsed_s": elapsed_s, "peak_memory_mib": peak_memory_mib()}))


def peak_memory_mib() -> float:
    """This process's own peak; getrusage may report the parent process's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def measure(
    side: str, source: Path, protocol: str, num_heldout: int, memory_limit: str | None
) -> dict[str, float]:
    """Prepare once in a process of its own."""
    limit = ["--memory-limit", memory_limit] if memory_limit else []
    asked = [side, str(source), protocol, str(num_heldout)]
    command = [sys.executable, "-m", "benchmarks.plain_prepare", "--measure", *asked, *limit]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def generated(shape: Any, suffix: str, cache: Path) -> Path:
    """The file of generated ratings of that shape, made if it does not exist."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    from foretaste.data import generate

    name = f"{shape.num_users}x{shape.num_items}x{shape.num_interactions}.{suffix}"
    path = cache / name
    if not path.is_file():
        table = generate(shape).table
        stars = np.random.default_rng(shape.seed).integers(1, 11, table.num_rows, dtype=np.int8)
        table = table.append_column("rating", pa.array(stars / np.float32(2))).select(COLUMNS)
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{name}")
        if suffix == "csv":
            pa_csv.write_csv(table, unfinished)
        else:
            pq.write_table(table, unfinished)
        unfinished.replace(path)
    return path


def row(
    side: str, case: dict[str, Any], found: list[dict[str, float]], shape: Any
) -> dict[str, Any]:
    from dataclasses import asdict

    import torch

    from foretaste.bench.measure import Spread
    from foretaste.bench.rows import environment

    context = environment(torch.device("cpu"))
    context["versions"] |= {name: version(name) for name in ("duckdb", "pandas")}
    measured = {
        name: Spread.of([each[name] for each in found]).as_dict()
        for name in ("elapsed_s", "peak_memory_mib")
    }
    return {
        "benchmark": "prepare",
        "side": side,
        "case": case,
        "clock": CLOCK,
        "measured": measured,
        "shape": asdict(shape),
        **context,
    }


def compare(arguments: argparse.Namespace, shape: Any, suffix: str, protocol: str) -> None:
    """Measure one case, both sides alternately; write the rows and print the result."""
    source = generated(shape, suffix, arguments.cache)
    num_heldout = min(MAX_HELDOUT_USERS, shape.num_users // 10)
    found: dict[str, list[dict[str, float]]] = {side: [] for side in arguments.sides}
    for _ in range(arguments.turns):
        for side in arguments.sides:
            made = measure(side, source, protocol, num_heldout, arguments.memory_limit)
            found[side].append(made)
    case = {"format": suffix, **settings(protocol, num_heldout, arguments.memory_limit)}
    medians = {}
    for side, measurements in found.items():
        measured = row(side, case, measurements, shape)
        if arguments.output is not None:
            with arguments.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(measured) + "\n")
        time_s = measured["measured"]["elapsed_s"]
        peak = measured["measured"]["peak_memory_mib"]
        medians[side] = time_s["median"]
        print(
            f"{suffix} {protocol} {side}: {time_s['median']:.2f} s ({time_s['min']:.2f} to "
            f"{time_s['max']:.2f}), peak {peak['max']:,.0f} MiB",
            flush=True,
        )
    if len(medians) == 2:
        ratios = [
            plain["elapsed_s"] / ours["elapsed_s"]
            for plain, ours in zip(found["plain"], found["foretaste"], strict=True)
        ]
        print(f"  plain takes {min(ratios):.1f} to {max(ratios):.1f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="ml-20m", help="ml-20m or USERSxITEMSxINTERACTIONS")
    parser.add_argument("--formats", nargs="+", default=["csv", "parquet"])
    parser.add_argument("--protocols", nargs="+", choices=list(PLAIN), default=list(PLAIN))
    parser.add_argument(
        "--sides", nargs="+", choices=["foretaste", "plain"], default=["foretaste", "plain"]
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--memory-limit", help="of our side, such as 2GB")
    parser.add_argument("--cache", type=Path, help="where generated files are kept")
    parser.add_argument("--output", type=Path, help="file to which rows are added")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        side, source, protocol, num_heldout = arguments.measure
        limit = arguments.memory_limit
        measure_here(side, Path(source), protocol, int(num_heldout), limit)
        return
    from foretaste.bench.session import parse_shape

    shape = parse_shape(arguments.shape, "neumf")
    made = None
    if arguments.cache is None:
        arguments.cache = made = Path(tempfile.mkdtemp(prefix="plain-prepare-"))
    try:
        for suffix in arguments.formats:
            for protocol in arguments.protocols:
                compare(arguments, shape, suffix, protocol)
    finally:
        if made is not None:
            shutil.rmtree(made)


if __name__ == "__main__":
    main()

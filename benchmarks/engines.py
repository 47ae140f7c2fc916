"""Datasets that DuckDB and Spark prepare from the same files, compared by their digests.

    python -m benchmarks.engines ml-1m/ratings.parquet plays.parquet --partitions 2 7

Each file is prepared by DuckDB and, for every number of partitions, by Spark on this machine, under
every protocol, with and without filters. What one engine refuses the other must refuse. Exits with
1 where they differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from foretaste.data import prepare
from foretaste.errors import ForetasteError

PROTOCOLS = ("leave-one-out", "held-out-users", "temporal", "none")
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"filters": "reference"},
    {"min_user_interactions": 3, "min_item_users": 2, "unseen_targets": "drop"},
)


def prepared(source: Path, output: Path, settings: dict[str, Any]) -> tuple[Any, float]:
    """Digest, counts and notes of a dataset, or the kind of error, and the seconds it took."""
    begin = time.perf_counter()
    try:
        manifest = prepare(source, output, overwrite=True, **settings).manifest
        found: Any = manifest.digest, manifest.counts, manifest.notes
    except ForetasteError as error:
        found = type(error).__name__
    return found, time.perf_counter() - begin


def started(num_partitions: int) -> Any:
    """A session of Spark on all cores of this machine."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.sql.shuffle.partitions", num_partitions)
    for name, value in (
        ("ui.enabled", False),
        ("ui.showConsoleProgress", False),
        ("log.level", "OFF"),
    ):
        builder = builder.config(f"spark.{name}", value)
    # Otherwise it would choose the number itself.
    return builder.config("spark.sql.adaptive.enabled", False).getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--partitions", nargs="+", type=int, default=[2, 7])
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS))
    parser.add_argument("--time-column")
    arguments = parser.parse_args()
    cases = [
        (source, {"protocol": protocol, "time_column": arguments.time_column, **filters})
        for source in arguments.sources
        for protocol in arguments.protocols
        for filters in FILTERS
    ]
    num_differing = 0
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "dataset"
        expected = [prepared(source, output, settings) for source, settings in cases]
        for num_partitions in arguments.partitions:
            spark = started(num_partitions)
            for (source, settings), (first, first_s) in zip(cases, expected, strict=True):
                second, second_s = prepared(source, output, settings | {"engine": "spark"})
                num_differing += first != second
                digest = first if isinstance(first, str) else first[0][:12]
                print(
                    f"{'the same' if first == second else 'DIFFERENT'}  {digest:12}  "
                    f"duckdb {first_s:.1f} s, spark {second_s:.1f} s  "
                    f"{source.name}, {num_partitions} partitions, {settings}",
                    flush=True,
                )
            spark.stop()
    sys.exit(num_differing > 0)


if __name__ == "__main__":
    main()

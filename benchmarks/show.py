"""Rows of earlier measurements in one narrow table: ``python -m benchmarks.show FILE``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from foretaste._util.formatting import compact
from foretaste._util.terminal import exit_with_status
from foretaste.bench.rows import HEADINGS as OF_COMMANDS
from foretaste.bench.rows import Row, Table, cell
from foretaste.errors import SettingError

HEADINGS = {
    **{name: name for name in ("case", "seed", "threads", "metric", "target", "candidates")},
    "dataset": "data",
    "num_users": "users",
    "factor": "times",
    **{name: name for name in ("grown", "items", "width", "chunk", "compiled")},
    **OF_COMMANDS,
    "pairs_per_s": "pairs/s",
    "times_plain": "× plain",
    "seconds": "time",
    "us_per_sample": "per sample",
    "us_per_user": "per user",
    "negatives_share": "negatives",
    "reached": "reached",
    "epochs": "epochs",
    "train_s": "training",
    "left_out": "left out",
}
"""Columns of a table, in order."""


def main(tokens: Sequence[str] | None = None) -> None:
    """Print the table; a mistake exits with status 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.show", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args(tokens).files
    with exit_with_status():
        print(summary([row for file in files for row in read_rows(file)]).to_markdown())


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that benchmarks wrote; SettingError if it holds anything else."""
    names = [field.name for field in fields(Row)]
    try:
        documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [Row(**{name: document[name] for name in names}) for document in documents]
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(f"{path} does not hold rows of a benchmark: {error!r}") from error


def summary(rows: Sequence[Row]) -> Table:
    """All rows, a line each."""
    return Table(
        "summary",
        ("benchmark", "side", "case", "rate", "× plain", "p99", "memory"),
        tuple(
            (
                f"{row.benchmark} {row.model}",
                row.side,
                " ".join(cell(name, row.case[name]) for name in HEADINGS if name in row.case),
                _rate(row),
                _median("times_plain", row),
                cell("p99", row.measured.get("latency_ms", {}).get("p99")),
                cell("peak_memory_mib", row.measured.get("peak_memory_mib")),
            )
            for row in rows
        ),
    )


def _rate(row: Row) -> str:
    """The first rate of a row, or the number in its place."""
    for name in ("samples_per_s", "users_per_s"):
        if name in row.measured:
            return f"{_median(name, row)} {name.removesuffix('_per_s')}/s"
    if "cpu_s" in row.measured:
        return _time_to_quality(row)
    if "train_s" in row.measured:
        return f"{cell('train_s', row.measured['train_s'])}, {row.measured['epochs']} epochs"
    if "seconds" in row.measured:
        return cell("seconds", row.measured["seconds"])
    return "left out" if "left_out" in row.measured else ""


def _time_to_quality(row: Row) -> str:
    seconds = [cell(name, row.measured[name]) for name in ("elapsed_s", "cpu_s", "to_98_s")]
    quality = f"{row.measured['metric']} {row.measured['quality']:.4f}"
    if "difference" in row.measured:
        value, low, high = row.measured["difference"]
        quality += f", {value:+.4f} ({low:+.4f} to {high:+.4f})"
        times = [row.measured[f"times_{name}"] for name in ("elapsed_s", "cpu_s")]
        quality += f", beside / ours: elapsed {times[0]:.2f}, CPU {times[1]:.2f}"
    return f"{seconds[0]}, CPU {seconds[1]}, 98 % at {seconds[2]}, {quality}"


def _median(name: str, row: Row) -> str:
    spread = row.measured.get(name)
    return compact(spread["median"]) if spread else ""


if __name__ == "__main__":
    main()

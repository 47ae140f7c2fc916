"""Quality against the batch: what an epoch of larger batches learns, and at which learning rate.

    python -m benchmarks.batch_size gmf DATASET --batch-sizes 4096 65536 1048576 --epochs 30

DATASET is a prepared directory. Each training makes all of its epochs, and its best one by
validation is tested. Rates are scaled from the first batch: for each of ``--learning-rates``, every
other batch is tried with that rate (constant), with it times the root of the ratio of the batches
(sqrt), and with it times that ratio (linear); ``--scalings`` names some of the three. Rows that the
output has are not trained again; a training that was stopped goes on with what was saved of it
under ``--work``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import foretaste
from benchmarks.quality import SMALL
from foretaste.bench.rows import Table, environment
from foretaste.errors import TrainingError
from foretaste.runs import Run

CONFIGS: dict[str, Any] = SMALL | {"gmf": foretaste.GMFConfig(factors=32, loss="bce")}
EXPONENTS = {"constant": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Of the ratio of the batches, by how the learning rate is scaled."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training."""

    dataset: str
    model: str
    epochs: int
    batch_size: int
    scaling: str
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        """Of its row and its run; a rate is trained once, however it was scaled."""
        parts = (self.dataset, self.model, self.epochs, self.batch_size, self.learning_rate)
        return "-".join(map(str, (*parts, self.seed)))


def cases(asked: argparse.Namespace) -> Iterator[Case]:
    """Every batch and rate with one seed before the next seed."""
    for seed in asked.seeds:
        for batch_size in asked.batch_sizes:
            scaling_of: dict[float, str] = {}
            for scaling in asked.scalings:
                factor = (batch_size / asked.batch_sizes[0]) ** EXPONENTS[scaling]
                label = "constant" if factor == 1.0 else scaling
                for rate in asked.learning_rates:
                    scaling_of.setdefault(float(f"{rate * factor:.3g}"), label)
            for rate, scaling in scaling_of.items():
                yield Case(
                    dataset=asked.dataset.name,
                    model=asked.model,
                    epochs=asked.epochs,
                    batch_size=batch_size,
                    scaling=scaling,
                    learning_rate=rate,
                    seed=seed,
                )


def measure(case: Case, dataset: Path, work: Path) -> Row:
    """Train one case, or go on with it; the row to be written. A diverged one has no numbers."""
    path = work / case.name
    row = {"name": case.name, **asdict(case), **environment(torch.device("cpu"))}
    try:
        run = _trained(case, dataset, path)
    except TrainingError as error:
        row["diverged"] = str(error)
    else:
        *_, tested, summary = run.log.read()
        metrics = tested["evaluation"]["metrics"]
        row["select_by"] = summary["select_by"]
        row["best_epoch"] = summary["best_epoch"]
        row["validation"] = summary["best_value"]
        row["test"] = {name: metric["value"] for name, metric in metrics.items()}
        row["train_s"] = summary["train_s"]
        row["settings"] = {**run.config.model_config, **run.config.resolved}
    shutil.rmtree(path)
    return row


def _trained(case: Case, dataset: Path, path: Path) -> Run:
    if path.exists():
        run = Run.open(path)
        return run if run.is_finished else foretaste.resume(run)
    return foretaste.train(
        case.model,
        dataset,
        model_config=CONFIGS.get(case.model),
        config=foretaste.TrainingConfig(
            epochs=case.epochs,
            batch_size=case.batch_size,
            learning_rate=case.learning_rate,
            seed=case.seed,
            patience=0,
            device="cpu",
        ),
        run=path,
    )


def table(rows: Sequence[Row]) -> Table:
    """A line for each batch: the rate with the best mean on validation, and what it reaches.

    The last column is the test metric less that of the first batch, paired by seed: the mean and
    the range over seeds.
    """
    found = [row for row in rows if "diverged" not in row]
    batches = sorted({row["batch_size"] for row in found})
    chosen = [_best_rate([row for row in found if row["batch_size"] == size]) for size in batches]
    first = {row["seed"]: _tested(row) for row in chosen[0]}
    lines = []
    for of_batch in chosen:
        one = of_batch[0]
        less = [_tested(row) - first[row["seed"]] for row in of_batch if row["seed"] in first]
        epochs = [row["best_epoch"] for row in of_batch]
        cells = (
            f"{one['batch_size']:,}",
            f"{one['learning_rate']:g}, {one['scaling']}",
            str(len(of_batch)),
            f"{min(epochs)} to {max(epochs)}",
            f"{statistics.fmean(row['validation'] for row in of_batch):.4f}",
            f"{statistics.fmean(map(_tested, of_batch)):.4f}",
            f"{statistics.fmean(less):+.4f} ({min(less):+.4f} to {max(less):+.4f})",
        )
        lines.append(cells)
    one = found[0]
    title = f"{one['model']} on {one['dataset']}, {one['epochs']} epochs, {one['select_by']}"
    heads = ("batch", "learning rate", "seeds", "best epoch", "validation", "test", "less first")
    return Table(title, heads, tuple(lines))


def _best_rate(rows: Sequence[Row]) -> list[Row]:
    """The rows of the rate with the best mean on validation, of those with the most seeds."""
    by_rate: dict[float, list[Row]] = {}
    for row in rows:
        by_rate.setdefault(row["learning_rate"], []).append(row)
    return max(
        by_rate.values(),
        key=lambda some: (len(some), statistics.fmean(row["validation"] for row in some)),
    )


def _tested(row: Row) -> float:
    value: float = row["test"][row["select_by"]]
    return value


def main(tokens: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=("neumf", "gmf", "vae"))
    parser.add_argument("dataset", type=Path, help="a prepared directory")
    parser.add_argument("--batch-sizes", nargs="+", type=int, required=True)
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[0.001, 0.002])
    parser.add_argument("--scalings", nargs="+", choices=EXPONENTS, default=list(EXPONENTS))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/batch_size.jsonl"))
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "foretaste-batch-size"
    )
    asked = parser.parse_args(tokens)
    asked.output.touch()
    rows = [json.loads(line) for line in asked.output.read_text().splitlines()]
    wanted = list(cases(asked))
    done = {row["name"] for row in rows}
    for case in wanted:
        if case.name not in done:
            rows.append(measure(case, asked.dataset, asked.work))
            with asked.output.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    names = {case.name for case in wanted}
    print(table([row for row in rows if row["name"] in names]).to_markdown())


if __name__ == "__main__":
    main()

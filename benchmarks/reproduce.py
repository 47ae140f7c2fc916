"""A publication's trainings again, its numbers beside ours.

    python -m benchmarks.reproduce ncf-paper --seeds 3 --precision fp32 bf16

Behind torchrun every training is by all ranks, and the table says their number.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

from benchmarks.publications import PUBLICATIONS, Publication, Step
from foretaste._util.process import launch
from foretaste._util.terminal import run_command
from foretaste.data.config import PrepareConfig
from foretaste.data.dataset import Dataset, open_dataset, open_or_prepare, prepared_dataset
from foretaste.data.manifest import RANDOM
from foretaste.errors import SettingError
from foretaste.models.registry import config_class
from foretaste.report.tables import Cell, Grid, Tabular
from foretaste.runs.files import CONFIG
from foretaste.runs.run import Run
from foretaste.training.callbacks import Callback
from foretaste.training.config import Precision, TrainingConfig, acting
from foretaste.training.strategy import Strategy, strategy_here
from foretaste.training.verbs import resume, train
from foretaste.tune.directory import chose_on_test, flattery, trainings_at, write_tables

_HALVES = ("pretrained_gmf", "pretrained_mlp")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric of one step in one precision: as published, and over our seeds."""

    step: str
    precision: str
    metric: str
    published: float
    values: tuple[float, ...]
    """By seed."""
    low: float
    high: float
    """Ends of the 95 % interval over users, means of those of the seeds."""
    train_s: float
    """Mean over the seeds, evaluation left out."""
    published_train_s: float | None
    speedup: float
    """Time to train of the first precision over that of this one."""
    num_ranks: int
    batch_per_rank: int
    conditions: tuple[str, ...]
    """Lines on what was measured."""

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.values)

    def cells(self) -> tuple[Cell, ...]:
        """The row as the table has it."""
        published_s = self.published_train_s
        lowest, highest = min(self.values), max(self.values)
        return (
            Cell(self.metric),
            Cell(f"{self.published:.4f}"),
            Cell(f"{self.mean:.4f}", f"{self.low:.4f}–{self.high:.4f}"),
            Cell(f"{self.mean - self.published:+.4f}"),
            Cell(f"{lowest:.4f}–{highest:.4f}"),
            Cell(f"{highest:.4f}"),
            Cell(str(len(self.values))),
            Cell(str(self.num_ranks)),
            Cell(f"{self.batch_per_rank:,}"),
            Cell(f"{self.train_s:,.1f} s"),
            Cell("-" if published_s is None else f"{published_s:,.1f} s"),
            Cell(f"{self.speedup:.2f} ×"),
        )

    def as_dict(self) -> dict[str, Any]:
        """A flat record."""
        return {
            "step": self.step,
            "precision": self.precision,
            "metric": self.metric,
            "published": self.published,
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "difference": self.mean - self.published,
            "min": min(self.values),
            "max": max(self.values),
            "num_seeds": len(self.values),
            "train_s": self.train_s,
            "published_train_s": self.published_train_s,
            "speedup": self.speedup,
            "num_ranks": self.num_ranks,
            "batch_per_rank": self.batch_per_rank,
        }


@dataclass(frozen=True, kw_only=True)
class Reproduction(Tabular):
    """A publication's numbers beside ours."""

    path: Path
    """Directory of every run, and of the table."""
    name: str
    publication: Publication
    results: tuple[Row, ...]

    def grid(self) -> Grid:
        """A row for each step, precision and metric."""
        headings = (
            *("", "metric", "published", "ours", "ours less published", "range", "best", "seeds"),
            *("ranks", "batch a rank", "time to train", "published", "speed-up"),
        )
        rows = [(f"{row.step}, {row.precision}", row.cells()) for row in self.results]
        return Grid(headings=headings, rows=tuple(rows))

    def notes(self) -> list[str]:
        """Lines to print below the table: the source, the measurement, and what differs."""
        return [
            f"published: {self.publication.source}",
            *dict.fromkeys(line for row in self.results for line in row.conditions),
            "ours is the mean over the seeds, with its 95 % interval over users; best is the best "
            "seed's; time to train leaves evaluation out",
            *(f"differs: {text}" for text in self.publication.differs),
            f"every run is kept in {self.path}",
        ]

    def rows(self) -> list[dict[str, Any]]:
        """One flat record per row of the table."""
        return [row.as_dict() for row in self.results]


def reproduce(
    name: str,
    *,
    seeds: int = 1,
    precision: Sequence[Precision] = ("fp32",),
    dataset: Dataset | Path | str | None = None,
    source_dir: Path | str | None = None,
    output: Path | None = None,
    callback: Callback | None = None,
    device: str = "auto",
) -> Reproduction:
    """Train what a publication trained, as it did, and put its numbers beside ours.

    Called again with the same arguments it goes on where it was interrupted, and with more seeds
    or precisions from the last.

    Args:
        name: one of `PUBLICATIONS`.
        seeds: trainings of each model: seeds 1, 2, ...
        precision: what the large products are computed in; each is a row of its own. Models that
            have none are trained in fp32.
        dataset: data to take in place of the published set, prepared already or raw: the same
            interactions in another file, say. It must be split as published.
        source_dir: folder of the named set's files or archive; nothing is downloaded then.
        output: directory of the runs, and of the table as Markdown, CSV and JSON; by default
            ``reproductions/NAME``.
        callback: as in `train`; gets the events of every training.

    Raises SettingError for a dataset that is split in another way, and where ``output`` was begun
    with other settings or holds something else; and what `prepare` and `train` raise.
    """
    publication, place = PUBLICATIONS[name], output or Path("reproductions") / name
    precisions = list(dict.fromkeys(precision))
    with strategy_here() as strategy:
        data = strategy.opened(lambda: _data(publication, dataset, source_dir), open_dataset)
        begun_with = {"name": name, "dataset": data.manifest.digest, "device": device}
        with trainings_at(place, begun_with) if strategy.writes else nullcontext():
            found: dict[tuple[str, str, int], Run] = {}
            for each, seed, step in product(precisions, range(1, seeds + 1), publication.steps):
                config = TrainingConfig(seed=seed, device=device, precision=each)
                own = acting(config, config_class(step.model))
                path = place / f"{step.name}-{own.precision}-{seed}"
                settings: dict[str, Any] = {"config": own, **step.settings}
                if settings.get("candidates") == "sampled-99" and data.has_candidates("test"):
                    settings["candidates"] = "fixed"
                for option, half in zip(_HALVES, step.halves, strict=False):
                    settings[option] = found[half, each, seed].path
                found[step.name, each, seed] = _trained(
                    path, step.model, data, strategy, callback=callback, **settings
                )
            rows = [
                row
                for step, each in product(publication.steps, precisions)
                for row in _rows(
                    step,
                    [found[step.name, each, seed + 1] for seed in range(seeds)],
                    [found[step.name, precisions[0], seed + 1] for seed in range(seeds)],
                    strategy.hardware.get("num_ranks", 1),
                )
            ]
            # what has one precision was trained once, for all that were asked for
            results = {(row.step, row.precision, row.metric): row for row in rows}
            result = Reproduction(
                path=place, name=name, publication=publication, results=tuple(results.values())
            )
            if strategy.writes:
                write_tables(place, result.grid(), result.notes(), result.rows())
    return result


def _trained(path: Path, model: str, dataset: Dataset, strategy: Strategy, **settings: Any) -> Run:
    """The run at ``path``, trained to its end: from the beginning, or from where it stopped."""
    if not strategy.first((path / CONFIG).exists):
        return train(model, dataset, run=path, **settings)
    run = Run.open(path)
    if strategy.first(lambda: run.is_finished):
        return run
    return resume(run, dataset=dataset.path, callback=settings["callback"])


def _data(publication: Publication, dataset: Any, source_dir: Path | str | None) -> Dataset:
    """The data, split as published; SettingError for a dataset that is split in another way."""
    asked = PrepareConfig(**publication.preparation)
    if dataset is None:
        return open_or_prepare(publication.data, asked, source_dir=source_dir)
    if source_dir is not None:
        raise SettingError("dataset and source_dir both name the data; leave out one of them")
    data = prepared_dataset(dataset) or open_or_prepare(dataset, asked)
    protocol, has_validation = data.manifest.protocol, data.has_split("validation")
    if protocol == RANDOM and asked.protocol == "leave-one-out":
        raise SettingError(
            f"{data.path} has no times, so that each user's last item, which the published split "
            "holds out, is not known; prepare it with --time-column"
        )
    is_alike = has_validation == (asked.validation == "hold-out") and data.has_split("test")
    if protocol not in (asked.protocol, "given") or not is_alike:
        parts = "with" if has_validation else "without"
        raise SettingError(
            f"{data.path} has protocol {protocol}, {parts} a validation part, where the published "
            f"split is {asked.protocol}, validation {asked.validation}; prepare it with --protocol "
            f"{asked.protocol} --validation {asked.validation} --filters reference"
        )
    return data


def _rows(
    step: Step, runs: Sequence[Run], first_runs: Sequence[Run], num_ranks: int
) -> Iterator[Row]:
    """A row for each published metric, of the runs of all seeds; ``first_runs`` are of the first
    precision."""
    precision: str = runs[0].config.resolved["precision"]
    evaluations = [run.metrics for run in runs]
    logs = [run.log.read() for run in runs]
    train_s = statistics.fmean(log[-1]["train_s"] for log in logs)
    first_train_s = statistics.fmean(run.log.read()[-1]["train_s"] for run in first_runs)
    for metric, published in step.published.items():
        found = [one.metrics[metric] for one in evaluations if one is not None]
        yield Row(
            step=step.name,
            precision=precision,
            metric=metric,
            published=published,
            values=tuple(one.value for one in found),
            low=statistics.fmean(one.low for one in found if one.low is not None),
            high=statistics.fmean(one.high for one in found if one.high is not None),
            train_s=train_s,
            published_train_s=step.published_train_s.get(precision),
            speedup=first_train_s / train_s,
            num_ranks=num_ranks,
            batch_per_rank=runs[0].config.resolved["batch_size"] // num_ranks,
            conditions=(
                *(line for one in evaluations if one for line in one.conditions()),
                *flattery(step.name for log in logs if chose_on_test(log)),
            ),
        )


def main(tokens: Sequence[str] | None = None) -> None:
    """Read the command line, train, and print the table; a mistake exits with status 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce")
    parser.add_argument("name", choices=PUBLICATIONS)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each model")
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=get_args(Precision),
        default=["fp32"],
        help="what the large products are computed in; each is a row",
    )
    parser.add_argument("--dataset", help="prepared or raw data in place of the published set")
    parser.add_argument("--source-dir", help="folder of the published set's files or archive")
    parser.add_argument("--output", type=Path, help="directory of the runs and of the table")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")

    def work() -> None:
        found = reproduce(**vars(parser.parse_args(tokens)))
        if launch().rank == 0:
            print("\n".join([found.grid().to_markdown(), "", *found.notes()]))

    run_command(work)


if __name__ == "__main__":
    main()

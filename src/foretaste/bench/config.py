"""Options of the benchmarks. Defaults that depend on the device are None or empty."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range, Seed, Threads, check_settings
from foretaste.models.config import Auto
from foretaste.training.config import Precision

Counts = Annotated[tuple[int, ...], Range(at_least=1)]


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Options of every benchmark."""

    shape: str = "ml-1m"
    """Size of the generated data: ml-20m, ml-1m, ml-100k or USERSxITEMSxINTERACTIONS. For vae,
    ml-20m is the training data of the reference: 116,677 users and 20,108 items."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:N."""

    threads: Threads | None = None
    """CPU threads of each rank; by default PyTorch's number."""

    repeats: Count = 5
    """Number of measurements of each case; their median and spread are shown."""

    warmup: Annotated[int, Range(at_least=0)] = 1
    """Number of measurements before these, which do not count; their time is shown separately."""

    seed: Seed = 1
    """Seed of initial weights, order, negatives, dropout and noise."""

    output: Path | None = None
    """File to which one JSON object per measurement is appended."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class TrainBench(BenchConfig):
    """Training throughput and time per epoch."""

    precision: tuple[Literal[Precision, Auto], ...] = ("auto",)
    """Precisions of training, one after the other; auto is the default of training."""

    batch_size: Counts = ()
    """Samples (neumf) or users (vae) per update, one size after the other. Default: the
    reference's sizes on a GPU (1,048,576; 24,576), 65,536 and 500 on a CPU."""


@dataclass(frozen=True, kw_only=True)
class InferenceBench(BenchConfig):
    """Scores of the whole catalogue on the device."""

    batch_sizes: Counts = ()
    """Users per call, one size after the other."""

    calls: Count = 200
    """Most timed calls for each batch size; percentiles are over all of them."""

    seconds: Annotated[float, Range(above=0)] = 10.0
    """Seconds for each batch size and side, after which no further call begins."""


@dataclass(frozen=True, kw_only=True)
class PairsBench(InferenceBench):
    """Scores of the whole catalogue, or of single pairs, on the device."""

    pairs: Counts = ()
    """Pairs of a user and an item per call, one size after the other, in place of the catalogue; in
    fp32 and in the device's half precision."""


@dataclass(frozen=True, kw_only=True)
class RecommendBench(InferenceBench):
    """End to end: user ids or histories in, lists of item ids out, both on the host."""

    k: Count = 100
    """Items per list."""

    history_length: Count | None = None
    """Answer new users with this many random items of the catalogue each. By default the generated
    data have the histories."""

"""Options of the benchmarks. Defaults that depend on the device are None or empty here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from foretaste._util.settings import Count, Range, Seed, Threads, check_settings
from foretaste.models.config import Auto
from foretaste.training.config import Precision

Counts = Annotated[tuple[int, ...], Range(at_least=1)]


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Options of every benchmark."""

    shape: str = "ml-1m"
    """Data to generate: ml-20m, ml-1m, ml-100k or USERSxITEMSxINTERACTIONS. For vae, ml-20m is
    what its reference trains on: 116,677 users and 20,108 items."""

    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""

    threads: Threads | None = None
    """CPU threads, of each rank; as many as PyTorch takes unless given."""

    repeats: Count = 5
    """Measurements of each case; the median counts, the spread is shown."""

    warmup: Annotated[int, Range(at_least=0)] = 1
    """Measurements before them that do not count; their time is shown apart."""

    seed: Seed = 1
    """Decides initial weights, order, negatives, dropout and noise."""

    output: Path | None = None
    """Append one JSON object per measurement to this file."""

    data_cache: Path | None = None
    """Directory that keeps generated data from one benchmark to the next."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class TrainBench(BenchConfig):
    """Training throughput and time per epoch."""

    precision: tuple[Precision | Auto, ...] = ("auto",)
    """Precisions to train in, one after the other; auto is the one that training takes."""

    batch_size: Counts = ()
    """Samples (neumf) or users (vae) per update, one size after the other. Unless given, the
    reference's on a GPU (1,048,576; 24,576) and 65,536 or 500 on a CPU."""

    steps: Count | None = None
    """Updates in a measurement, on as much of the data as they need; a whole epoch unless given."""


@dataclass(frozen=True, kw_only=True)
class InferenceBench(BenchConfig):
    """Scores on the device: independent (user, item) pairs, or the catalogue for histories."""

    batch_sizes: Counts = ()
    """Pairs, users or histories per call, one size after the other."""

    calls: Count = 200
    """Calls to time for each batch size, at most; percentiles are over all of them."""

    seconds: Annotated[float, Range(above=0)] = 10.0
    """Time for one batch size and side after which no further call is begun."""


@dataclass(frozen=True, kw_only=True)
class NeuMFInferenceBench(InferenceBench):
    """Scores of independent (user, item) pairs."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions of the tower's products, one after the other."""


@dataclass(frozen=True, kw_only=True)
class RecommendBench(InferenceBench):
    """End to end: user ids or histories in, lists of item ids out, both on the host."""

    k: Count = 100
    """Items per list."""

    history_length: Count | None = None
    """Ask for new users with this many items each, drawn from the whole catalogue by chance; unless
    given, histories are those of the generated data."""

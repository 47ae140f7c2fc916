"""What may be asked of a benchmark. Defaults that depend on the device are None here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from foretaste._util.settings import Count, Range, Seed, Threads, check_settings, wrong
from foretaste.errors import SettingError
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.training.config import Precision

Counts = Annotated[tuple[int, ...], Range(at_least=1)]
Opponent = Literal["plain"]
PlainPrecision = Literal["fp32", "bf16"]

_PAPER_FACTORS = 8
_PAPER_LAYERS = (64, 32, 16, 8)


@dataclass(frozen=True, kw_only=True)
class NeuMFSizes(NeuMFConfig):
    """NeuMF's sizes for a benchmark. Defaults are NVIDIA's."""

    paper_sizes: bool = False
    """Factors 8 and layers 64 32 16 8, as in the paper, instead of NVIDIA's."""

    def model_config(self) -> NeuMFConfig:
        """The model's settings."""
        default = NeuMFConfig()
        if not self.paper_sizes:
            return NeuMFConfig(factors=self.factors, layers=self.layers, dropout=self.dropout)
        if (self.factors, self.layers) != (default.factors, default.layers):
            raise SettingError(
                f"paper_sizes was given together with factors {self.factors} and layers "
                f"{' '.join(map(str, self.layers))}; leave out one or the other"
            )
        return NeuMFConfig(factors=_PAPER_FACTORS, layers=_PAPER_LAYERS, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What every benchmark may be told."""

    shape: str = "ml-1m"
    """Data to generate: ml-20m, ml-1m, ml-100k or USERSxITEMSxINTERACTIONS. For vae, ml-20m is
    what its reference trains on: 116,677 users and 20,108 items."""

    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""

    threads: Threads | None = None
    """CPU threads; as many as PyTorch takes unless given."""

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
    """Training throughput and time per epoch; time to a target."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions to train in, one after the other."""

    batch_size: Counts = ()
    """Samples (neumf) or users (vae) per update, one size after the other. Unless given, the
    reference's on a GPU (1,048,576; 24,576) and 65,536 or 500 on a CPU."""

    steps: Count | None = None
    """Updates in a measurement, on as much of the data as they need; a whole epoch unless given."""

    compile: bool = False
    """Hand our loss to torch.compile, as ``train --compile`` does."""

    against: Opponent | None = None
    """plain: train a straightforward loop too, in turns with ours, and show the ratio."""

    plain_precision: PlainPrecision = "fp32"
    """What the plain loop computes in: fp32, or bf16 by autocast."""

    plain_chunk: Count | None = None
    """Samples or users the plain loop takes at once when it accumulates a batch; for neumf the
    best of several is found by trying unless given."""

    target: Annotated[float | None, Range(above=0, at_most=1)] = None
    """Also train until this value of the metric is reached, and show how long it took."""

    select_by: str = "hr@10"
    """Metric of the target."""

    candidates: str = "full"
    """What held-out items are ranked against for the target: full, sampled-N or nvidia-N."""

    max_epochs: Count = 40
    """Epochs after which a target not reached is given up."""

    dataset: Path | None = None
    """Prepared dataset for the target; unless given, an item of each generated user is held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_precisions(self.precision)
        if self.dataset is not None and self.target is None:
            raise SettingError(
                "dataset serves the time to a target only; give target too, or leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class LatencyConfig(BenchConfig):
    """What every benchmark of single calls may be told."""

    batch_sizes: Counts = ()
    """Pairs, users or histories per call, one size after the other."""

    calls: Count = 200
    """Calls to time for each batch size, at most; percentiles are over all of them."""

    seconds: Annotated[float, Range(above=0)] = 10.0
    """Time for one batch size and side after which no further call is begun."""

    against: Opponent | None = None
    """plain: time a straightforward implementation too, in turns with ours; shows the ratio."""


@dataclass(frozen=True, kw_only=True)
class InferenceBench(LatencyConfig):
    """Scores on the device: independent (user, item) pairs, or the catalogue for histories."""


@dataclass(frozen=True, kw_only=True)
class NeuMFInferenceBench(InferenceBench):
    """Scores of independent (user, item) pairs."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions of the tower's products, one after the other; the plain side's are fp32."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_precisions(self.precision)


@dataclass(frozen=True, kw_only=True)
class RecommendBench(LatencyConfig):
    """End to end: what is known of users in, lists of item ids out, both on the host."""

    k: Count = 100
    """Items per list."""

    all_users: bool = False
    """Instead, rank the whole catalogue for all users, as fast as possible."""

    num_users: Count | None = None
    """With all_users: rank for this many users only."""

    history_length: Count | None = None
    """Ask for new users with this many items each, drawn from the whole catalogue by chance; unless
    given, histories are those of the generated data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history_length is not None and self.all_users:
            raise SettingError("history_length is of new users, not of all_users; leave out one")
        if self.num_users is not None and not self.all_users:
            raise SettingError("num_users belongs to all_users; give both or neither")


@dataclass(frozen=True, kw_only=True)
class ScalingBench(BenchConfig):
    """What both benchmarks of growing data may be told."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions to train in, one after the other."""

    batch_size: Count | None = None
    """Samples (neumf) or users (vae) per update; unless given, 1,048,576 or 4,096 on a GPU and
    65,536 or 500 on a CPU."""

    steps: Count = 2
    """Updates in a measurement."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_precisions(self.precision)


@dataclass(frozen=True, kw_only=True)
class NeuMFScalingBench(ScalingBench):
    """Cost of training as the data grow."""

    shape: str = "2000x2000x20000"
    """Data to start from: USERSxITEMSxINTERACTIONS."""

    factor: Counts = (1, 10, 100)
    """How many times the users, the items, the interactions and all of them grow."""


@dataclass(frozen=True, kw_only=True)
class VAEScalingBench(ScalingBench):
    """Time and memory of training as the catalogue grows."""

    shape: str = "4000x10000x400000"
    """Users and interactions of each case. Its items are those of items, whatever stands here."""

    items: Counts = (10_000, 100_000, 500_000, 1_000_000)
    """Sizes of the catalogue."""

    widths: Counts = (600, 600, 600, 200)
    """Width of the hidden layers for each of them; one width serves all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.widths) not in (1, len(self.items)):
            allowed = f"one width for all, or one for each of the {len(self.items)} items"
            raise wrong("widths", self.widths, allowed)


def _check_precisions(precisions: tuple[Precision, ...]) -> None:
    if not precisions:
        raise wrong("precision", precisions, " or ".join(get_args(Precision)))

"""What may be asked of a benchmark. Defaults that depend on the device are None here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from foretaste._util.checks import check_choice, check_number, check_whole
from foretaste.errors import SettingError
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.training.config import Precision

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

    threads: int | None = None
    """CPU threads; as many as PyTorch takes unless given."""

    repeats: int = 5
    """Measurements of each case; the median counts, the spread is shown."""

    warmup: int = 1
    """Measurements before them that do not count; their time is shown apart."""

    seed: int = 1
    """Decides initial weights, order, negatives, dropout and noise."""

    output: Path | None = None
    """Append one JSON object per measurement to this file."""

    data_cache: Path | None = None
    """Directory that keeps generated data from one benchmark to the next."""

    def __post_init__(self) -> None:
        check_whole("repeats", self.repeats, at_least=1)
        check_whole("warmup", self.warmup, at_least=0)
        if self.threads is not None:
            check_whole("threads", self.threads, at_least=1)


@dataclass(frozen=True, kw_only=True)
class TrainBench(BenchConfig):
    """Training throughput and time per epoch; time to a target."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions to train in, one after the other."""

    batch_size: tuple[int, ...] = ()
    """Samples (neumf) or users (vae) per update, one size after the other. Unless given, the
    reference's on a GPU (1,048,576; 24,576) and 65,536 or 500 on a CPU."""

    steps: int | None = None
    """Updates in a measurement, on as much of the data as they need; a whole epoch unless given."""

    compile: bool = False
    """Hand our loss to torch.compile, as ``train --compile`` does."""

    against: Opponent | None = None
    """plain: train a straightforward loop too, in turns with ours, and show the ratio."""

    plain_precision: PlainPrecision = "fp32"
    """What the plain loop computes in: fp32, or bf16 by autocast."""

    plain_chunk: int | None = None
    """Samples or users the plain loop takes at once when it accumulates a batch; for neumf the
    best of several is found by trying unless given."""

    target: float | None = None
    """Also train until this value of the metric is reached, and show how long it took."""

    select_by: str = "hr@10"
    """Metric of the target."""

    candidates: str = "full"
    """What held-out items are ranked against for the target: full, sampled-N or nvidia-N."""

    max_epochs: int = 40
    """Epochs after which a target not reached is given up."""

    dataset: Path | None = None
    """Prepared dataset for the target; unless given, an item of each generated user is held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_precisions(self.precision)
        for batch_size in self.batch_size:
            check_whole("batch_size", batch_size, at_least=1)
        for name in ("steps", "plain_chunk", "max_epochs"):
            if (value := getattr(self, name)) is not None:
                check_whole(name, value, at_least=1)
        if self.dataset is not None and self.target is None:
            raise SettingError(
                "dataset serves the time to a target only; give target too, or leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class LatencyConfig(BenchConfig):
    """What every benchmark of single calls may be told."""

    batch_sizes: tuple[int, ...] = ()
    """Pairs, users or histories per call, one size after the other."""

    calls: int = 200
    """Calls to time for each batch size, at most; percentiles are over all of them."""

    seconds: float = 10.0
    """Time for one batch size and side after which no further call is begun."""

    against: Opponent | None = None
    """plain: time a straightforward implementation too, in turns with ours; shows the ratio."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for batch_size in self.batch_sizes:
            check_whole("batch_sizes", batch_size, at_least=1)
        check_whole("calls", self.calls, at_least=1)
        check_number("seconds", self.seconds, above=0.0)


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

    k: int = 100
    """Items per list."""

    all_users: bool = False
    """Instead, rank the whole catalogue for all users, as fast as possible."""

    num_users: int | None = None
    """With all_users: rank for this many users only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("k", self.k, at_least=1)
        if self.num_users is not None:
            check_whole("num_users", self.num_users, at_least=1)
            if not self.all_users:
                raise SettingError("num_users belongs to all_users; give both or neither")


@dataclass(frozen=True, kw_only=True)
class ScalingBench(BenchConfig):
    """What both benchmarks of growing data may be told."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions to train in, one after the other."""

    batch_size: int | None = None
    """Samples (neumf) or users (vae) per update; unless given, 1,048,576 or 4,096 on a GPU and
    65,536 or 500 on a CPU."""

    steps: int = 2
    """Updates in a measurement."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_precisions(self.precision)
        check_whole("steps", self.steps, at_least=1)
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size, at_least=1)


@dataclass(frozen=True, kw_only=True)
class NeuMFScalingBench(ScalingBench):
    """Cost of training as the data grow."""

    shape: str = "2000x2000x20000"
    """Data to start from: USERSxITEMSxINTERACTIONS."""

    factor: tuple[int, ...] = (1, 10, 100)
    """How many times the users, the items, the interactions and all of them grow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for factor in self.factor:
            check_whole("factor", factor, at_least=1)


@dataclass(frozen=True, kw_only=True)
class VAEScalingBench(ScalingBench):
    """Time and memory of training as the catalogue grows."""

    shape: str = "4000x10000x400000"
    """Users and interactions of each case. Its items are those of items, whatever stands here."""

    items: tuple[int, ...] = (10_000, 100_000, 500_000, 1_000_000)
    """Sizes of the catalogue."""

    widths: tuple[int, ...] = (600, 600, 600, 200)
    """Width of the hidden layers for each of them; one width serves all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("items", "widths"):
            for value in getattr(self, name):
                check_whole(name, value, at_least=1)
        if len(self.widths) not in (1, len(self.items)):
            raise SettingError(
                f"widths has {len(self.widths)} values for {len(self.items)} of items; give one "
                "for all or one for each"
            )


def _check_precisions(precisions: tuple[str, ...]) -> None:
    if not precisions:
        raise SettingError(f"precision is empty; use {' or '.join(get_args(Precision))}")
    for precision in precisions:
        check_choice("precision", precision, get_args(Precision))

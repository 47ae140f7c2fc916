"""The benchmarks by name, as both command lines call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from foretaste._util.settings import wrong
from foretaste.bench.config import (
    BenchConfig,
    InferenceBench,
    NeuMFInferenceBench,
    NeuMFScalingBench,
    NeuMFSizes,
    RecommendBench,
    TrainBench,
    VAEScalingBench,
)
from foretaste.errors import SettingError
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.vae.config import VAEConfig

if TYPE_CHECKING:
    from foretaste.bench.rows import Row

MODELS = ("neumf", "vae")


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark is, and what it is told, by model."""

    run: str
    options: Mapping[str, type[BenchConfig]]
    help: str


BENCHMARKS = {
    "train": Benchmark(
        "foretaste.bench.train:bench_train",
        dict.fromkeys(MODELS, TrainBench),
        "Training throughput and time per epoch by precision; time to a target.",
    ),
    "inference": Benchmark(
        "foretaste.bench.inference:bench_inference",
        {"neumf": NeuMFInferenceBench, "vae": InferenceBench},
        "Throughput and latency of scores on the device, by batch size.",
    ),
    "recommend": Benchmark(
        "foretaste.bench.recommend:bench_recommend",
        dict.fromkeys(MODELS, RecommendBench),
        "End to end: users or histories in, lists of item ids out, both on the host.",
    ),
    "scaling": Benchmark(
        "foretaste.bench.scaling:bench_scaling",
        {"neumf": NeuMFScalingBench, "vae": VAEScalingBench},
        "Time per sample and peak memory of training as the data grow.",
    ),
}


def model_settings(model: str) -> type[NeuMFSizes | VAEConfig]:
    """The settings of a model that is measured; SettingError for another name."""
    if model not in MODELS:
        raise SettingError(f"model {model!r} has no benchmarks; use {' or '.join(MODELS)}")
    return VAEConfig if model == "vae" else NeuMFSizes


def run_benchmark(
    name: str,
    model: NeuMFSizes | VAEConfig,
    options: BenchConfig | None = None,
    *,
    sampling: SamplingConfig | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Run benchmark ``name`` (train, inference, recommend or scaling); one row per measurement.

    Args:
        model: what is measured: NeuMF of these sizes, or Mult-VAE.
        options: what the benchmark is told, of the class that ``BENCHMARKS`` names.
        sampling: how NeuMF's negatives are drawn.
        tell: hears what is being done.

    Raises SettingError for settings out of range.
    """
    if not isinstance(name, str) or name not in BENCHMARKS:
        raise wrong("benchmark", name, f"one of {', '.join(BENCHMARKS)}")
    import torch

    from foretaste.bench.memory import load_libraries
    from foretaste.bench.subject import Subject
    from foretaste.ops.device import resolve_device

    config = model.model_config() if isinstance(model, NeuMFSizes) else model
    subject = Subject(model=config, sampling=sampling)
    options = options or BENCHMARKS[name].options[subject.name]()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    load_libraries(resolve_device(options.device))
    module, _, function = BENCHMARKS[name].run.partition(":")
    rows: list[Row] = getattr(import_module(module), function)(subject, options, tell)
    return rows

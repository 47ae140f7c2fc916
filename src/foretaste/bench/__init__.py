"""Benchmarks: training, inference, recommendation and scaling, as rows a machine can read.

Runs from ``foretaste bench`` and, where neither a command line library nor DuckDB is installed,
from ``python -m foretaste.bench``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.bench.commands import run_benchmark
    from foretaste.bench.config import (
        InferenceBench,
        NeuMFInferenceBench,
        NeuMFScalingBench,
        NeuMFSizes,
        RecommendBench,
        TrainBench,
        VAEScalingBench,
    )

_MODULE_OF = {
    "InferenceBench": "config",
    "NeuMFInferenceBench": "config",
    "NeuMFScalingBench": "config",
    "NeuMFSizes": "config",
    "RecommendBench": "config",
    "TrainBench": "config",
    "VAEScalingBench": "config",
    "run_benchmark": "commands",
}

__all__ = [
    "InferenceBench",
    "NeuMFInferenceBench",
    "NeuMFScalingBench",
    "NeuMFSizes",
    "RecommendBench",
    "TrainBench",
    "VAEScalingBench",
    "run_benchmark",
]


__getattr__ = lazy_names(__name__, _MODULE_OF)

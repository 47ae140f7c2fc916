"""Item-kNN and RP3beta on a large catalogue: seconds to fit, and the peak of the process.

    python -m benchmarks.neighbors --shape 1000000x1000000x10000000 --data-cache CACHE

The data are generated, in a process of their own where the cache has none yet.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from foretaste._util.memory import peak_of_process
from foretaste.bench.session import load_histories, parse_shape
from foretaste.evaluation.ranking import to_device
from foretaste.models.baselines.neighbors import NeighborsModel
from foretaste.models.registry import build_model, config_class


def measure(model: str, shape: str, cache: Path) -> None:
    """Fit a model and print its row."""
    histories = load_histories(parse_shape(shape, model), cache)
    before = peak_of_process()
    fitted = build_model(model, config_class(model)(), histories.num_users, histories.num_items)
    assert isinstance(fitted, NeighborsModel)
    since = time.perf_counter()
    fitted.fit(to_device(histories, torch.device("cpu")), lambda *_: None)
    row = {
        "model": model,
        "shape": shape,
        "threads": torch.get_num_threads(),
        "fit_s": time.perf_counter() - since,
        "peak_bytes": peak_of_process(),
        "peak_bytes_before": before,
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    """Measure each model in a process of its own, whose peak is its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbors")
    parser.add_argument("--models", nargs="+", default=["itemknn", "rp3beta"])
    parser.add_argument("--shape", default="1000000x1000000x10000000")
    parser.add_argument("--data-cache", type=Path, required=True)
    asked = parser.parse_args()
    work: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
        (load_histories, (parse_shape(asked.shape, "itemknn"), asked.data_cache))
    ]
    work += [(measure, (model, asked.shape, asked.data_cache)) for model in asked.models]
    for function, arguments in work:
        process = get_context("spawn").Process(target=function, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    main()

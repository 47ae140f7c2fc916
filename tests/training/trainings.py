"""Short trainings, and the contents of their runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.torch import load_file, save

from foretaste.data import Dataset
from foretaste.data.request import PrepareRequest
from foretaste.models.ials.config import IALSConfig
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.models.vae.config import DAEConfig, RecVAEConfig, VAEConfig
from foretaste.runs import Run
from foretaste.training import Callback, LogConfig, PretrainingConfig, TrainingConfig, train
from foretaste.training.api import train_run
from foretaste.training.request import TrainRequest

CONFIGS: dict[str, Any] = {
    "neumf": NeuMFConfig(factors=4, layers=(8, 8, 4)),
    "gmf": GMFConfig(factors=4, loss="bce"),
    "mlp": MLPConfig(layers=(8, 8, 4)),
    "vae": VAEConfig(hidden=(12,), latent=4),
    "dae": DAEConfig(hidden=(12,), latent=4),
    "recvae": RecVAEConfig(width=12, latent=4),
    "ials": IALSConfig(factors=4),
    "sasrec": SASRecConfig(factors=8, max_length=6, dropout=0.1),
}
SETTINGS: dict[str, Any] = {"epochs": 3, "learning_rate": 0.01, "eval_every": 1, "device": "cpu"}


def run_of(
    name: str,
    dataset: Dataset,
    run_path: Path,
    model_config: Any = None,
    callback: Callback | None = None,
    start_from: Any = None,
    pretraining: PretrainingConfig | None = None,
    logs: LogConfig | None = None,
    *,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    return train(
        name,
        dataset,
        model_config=model_config or CONFIGS.get(name),
        config=TrainingConfig(**SETTINGS | settings),
        start_from=start_from,
        pretraining=pretraining,
        logs=logs,
        run=run_path,
        overwrite=overwrite,
        callback=callback,
    )


def trained_again(
    request: TrainRequest, dataset: Dataset, run_path: Path, callback: Callback | None = None
) -> Run:
    """Train by the settings of a request on a dataset."""
    data = PrepareRequest(source=dataset)
    return train_run(replace(request, data=data, run=run_path), callback)


def events(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for event in run.log.read() if event["event"] == kind]


TIMES = {"time", "train_s", "compile_s", "samples_per_s", "min_epoch_s", "avg_epoch_s"}
TIMES |= {"evaluated_users_per_s", "evaluated_samples_per_s", "elapsed_s", "memory_mib"}
TIMES |= {"min_evaluation_s", "avg_evaluation_s", "target_s", "search_s"}
# Digests cover lines with times.
TIMES |= {"log_sha256", "config_sha256", "sha256"}


def numbers_of(run: Run) -> list[dict[str, Any]]:
    """Every logged event except resumptions, without times."""
    return [_timeless(event) for event in run.log.read() if event["event"] != "resume"]


def weights_of(run: Run) -> bytes:
    """The bytes of the best weights, without the note on their run."""
    return save(load_file(run.path / "best.safetensors"))


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if name not in TIMES}
    return value


NEW = [(9_001, "a"), (9_002, "c")]
"""Items that nobody has, with their kind."""


def items_of(table: pa.Table, *new: tuple[int, str]) -> pa.Table:
    """The table's items, each with one kind among three, and the new items with their kinds."""
    old = [(item, "abc"[item % 3]) for item in sorted(set(table["item_id"].to_pylist()))]
    item_ids, kinds = zip(*old, *new, strict=True)
    return pa.table({"item_id": item_ids, "kind": kinds})

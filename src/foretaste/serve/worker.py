"""The application of one worker, which Uvicorn imports and makes by name."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp

from foretaste.serve.app import Service
from foretaste.serve.config import ServeConfig
from foretaste.serve.models import ModelStore
from foretaste.serve.telemetry import MULTIPROCESS, LogLines
from foretaste.serve.workers import Workers, is_alive

DIRECTORY = "FORETASTE_SERVE"
"""Variable with the directory that holds the settings of the service, and its workers' states."""

_SETTINGS = "settings"
_SWITCH_INTERVAL_S = 0.0005
"""Of Python's threads: the event loop must not wait long for the thread that scores."""


def write_settings(directory: Path, paths: Sequence[Path], config: ServeConfig) -> None:
    """Keep what `app` needs; the directory is its user's alone, as a URL may hold a password."""
    settings = {"paths": paths, "config": asdict(config)}
    (directory / _SETTINGS).write_text(json.dumps(settings, default=str))


def app() -> ASGIApp:
    """The application of the settings in the directory that the environment names."""
    directory = Path(os.environ[DIRECTORY])
    settings = json.loads((directory / _SETTINGS).read_text())
    given = settings["config"]
    if given["token_file"] is not None:
        given["token_file"] = Path(given["token_file"])
    config = ServeConfig(**given | {"allowed_hosts": tuple(given["allowed_hosts"])})
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    log_by_lines(logging.WARNING)
    if config.workers > 1:
        _drop_gauges_of_the_dead(Path(os.environ[MULTIPROCESS]))
        if "OMP_NUM_THREADS" not in os.environ:  # they share the cores
            torch.set_num_threads(max(1, torch.get_num_threads() // config.workers))
    store = ModelStore([Path(path) for path in settings["paths"]], config.device)
    return Service(store, config, Workers(directory), when_ready=_freeze).app()


def log_by_lines(level: int) -> None:
    """Write what Uvicorn logs at a level and above as the service writes its own log."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [LogLines(level)], False
    logger.setLevel(level)


def _freeze() -> None:
    # PyTorch's objects, which live for ever, take .2 s of every full search for garbage.
    gc.collect()
    gc.freeze()


def _drop_gauges_of_the_dead(directory: Path) -> None:
    """Leave what waited in workers that were killed out of the sum over all."""
    for path in directory.glob("gauge_live*_*.db"):
        process = int(path.stem.rpartition("_")[2])
        if not is_alive(process):
            mark_process_dead(process, str(directory))  # type: ignore[no-untyped-call]

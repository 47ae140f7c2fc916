"""The application of one worker, which Uvicorn makes in the process that answers."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path

import torch
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp

from foretaste.serve.app import Service
from foretaste.serve.config import ServeConfig
from foretaste.serve.models import ModelStore
from foretaste.serve.telemetry import MULTIPROCESS, LogLines
from foretaste.serve.workers import Workers, is_alive

_SWITCH_INTERVAL_S = 0.0005
"""Of Python's threads: the event loop must not wait long for the thread that scores."""


def app(store: ModelStore, config: ServeConfig, directory: Path) -> ASGIApp:
    """The application of these runs; workers keep their states in a directory of theirs."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    log_by_lines(logging.WARNING)
    if config.workers > 1:
        _drop_gauges_of_the_dead(Path(os.environ[MULTIPROCESS]))
        if "OMP_NUM_THREADS" not in os.environ:  # they share the cores
            torch.set_num_threads(max(1, torch.get_num_threads() // config.workers))
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

"""Processes for tests, forked from a server that has torch imported.

A start costs milliseconds; a new interpreter imports torch and the service in two seconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

PRELOADED = [
    "torch.distributed",
    "foretaste.cli.app",
    "foretaste.cli.serve",
    "foretaste.cli.train",
    "foretaste.distributed.strategy",
    "foretaste.models.vae.model",
    "foretaste.runs.run",
    "foretaste.serve.app",
    "foretaste.serve.connections",
    "foretaste.training.api",
    "foretaste.training.display",
    "rich.live",
    "rich.progress",
]


def fork(function: Callable[..., Any], *args: Any) -> BaseProcess:
    """Start ``function(*args)`` in a process, which ends with this one at the latest.

    Function and arguments are pickled, so the function is one of a module.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=function, args=args, daemon=True)
    process.start()
    return process

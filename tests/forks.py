"""Processes for tests, forked from a server that has torch imported.

A start costs milliseconds; a new interpreter imports torch and the service in two seconds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.stacks import abort

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
    "foretaste.serve.events",
    "foretaste.training.api",
    "foretaste.training.display",
    "rich.live",
    "rich.progress",
]


def fork(function: Callable[..., Any], *args: Any) -> BaseProcess:
    """Start ``function(*args)`` in a process, which ends with this one at the latest.

    Function and arguments are pickled, so the function is one of a module. Its environment is this
    process's, as a new interpreter's would be.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_call, args=(dict(os.environ), function, *args), daemon=True)
    process.start()
    return process


def run(
    directory: Path, function: Callable[..., Any], *args: Any, timeout_s: float
) -> tuple[int, str, str]:
    """Run ``function(*args)`` in a process of its own in ``directory``; return its exit status and
    what it printed on stdout and stderr. TimeoutError with its stacks if it does not end."""
    with TemporaryDirectory() as folder:
        printed = [Path(folder, name) for name in ("stdout", "stderr")]
        for path in printed:
            path.touch()
        process = fork(_run, directory, printed, function, args)
        process.join(timeout_s)
        if process.exitcode is None:
            abort([process])
            process.kill()
            raise TimeoutError(f"{function.__name__} did not end: {printed[1].read_text()}")
        out, err = (path.read_text() for path in printed)
        return process.exitcode, out, err


def _run(
    directory: Path, printed: list[Path], function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    import faulthandler

    import torch

    os.chdir(directory)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for number, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    faulthandler.enable(2)
    torch.set_num_threads(1)
    function(*args)


def _call(environment: dict[str, str], function: Callable[..., Any], *args: Any) -> None:
    os.environ.clear()  # the server has that of its start
    os.environ.update(environment)
    gc.freeze()  # a collection of what is imported takes 0.1 s, and ranks collect at their end
    function(*args)

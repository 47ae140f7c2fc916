"""One process of the service: its event loop, its signals, and how it loads the runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import uvicorn

from foretaste.serve.app import Service
from foretaste.serve.config import ServeConfig
from foretaste.serve.models import ModelStore
from foretaste.serve.protocol import KEEP_ALIVE_S, BoundedProtocol
from foretaste.serve.telemetry import LogLines, log

_SWITCH_INTERVAL_S = 0.0005
"""Of Python's threads: the event loop must not wait long for the thread that scores."""


class Process:
    """Answers requests that come through a socket."""

    def __init__(self, store: ModelStore, config: ServeConfig, listener: socket.socket) -> None:
        self._config = config
        self._listener = listener
        self._service = Service(store, config)
        self._failure: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, announce: Callable[[], None]) -> None:
        """Answer until a signal ends it, and ``announce`` the first time that all is loaded.

        Raises RunError where a run cannot be loaded.
        """
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        logger = logging.getLogger("uvicorn")
        logger.handlers, logger.propagate = [LogLines(logging.WARNING)], False
        server = _Server(self._uvicorn_config(), lambda: self._spawn(self.reload()))

        async def main() -> None:
            self._service.start()
            loading = self._spawn(self.load(server, announce))
            if self._config.workers > 1:
                self._be_one_of_several(server)
                server.loading = loading
            await server.serve(sockets=[self._listener])
            await self._service.close()

        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(main())
        if self._failure is not None:
            raise self._failure

    def _be_one_of_several(self, server: uvicorn.Server) -> None:
        """Share the cores, pass reloads on to all, and end where the supervisor is gone."""
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, torch.get_num_threads() // self._config.workers))
        supervisor = os.getppid()

        def reload_all() -> None:  # this worker too, for which nothing is new
            if os.getppid() == supervisor:
                os.kill(supervisor, signal.SIGHUP)

        async def look_for_supervisor() -> None:
            server.should_exit = server.should_exit or os.getppid() != supervisor

        self._service.after_reload = reload_all
        server.config.callback_notify = look_for_supervisor
        server.config.timeout_notify = 1

    def _uvicorn_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._service.app(),
            # It is called like a class, which it may be.
            http=partial(BoundedProtocol, deadline_s=self._config.deadline_s),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=self._config.drain_s,
        )

    async def load(self, server: uvicorn.Server, announce: Callable[[], None]) -> None:
        """Load the runs; where this process is alone, it answers probes and refuses the rest."""
        try:
            await self._service.reload()
            # PyTorch's objects, which live for ever, take .2 s of every full search for garbage.
            gc.collect()
            gc.freeze()
            announce()
        except Exception as error:
            self._failure = error
            server.should_exit = True

    async def reload(self) -> None:
        """Load the runs anew; the log says so where that cannot be."""
        try:
            await self._service.reload()
        except Exception as error:  # what was loaded before goes on answering
            log("reload_failed", message=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Server(uvicorn.Server):
    """Uvicorn's server with the signals of this service."""

    def __init__(self, config: uvicorn.Config, reload: Callable[[], object]) -> None:
        super().__init__(config)
        self._actions = {"SIGTERM": self._drain, "SIGINT": self._drain, "SIGHUP": reload}
        self.loading: asyncio.Task[None] | None = None
        """Ends before connections are accepted, which other workers can answer meanwhile."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.loading is not None:
            await self.loading
        if not self.should_exit:
            await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Within, SIGTERM and SIGINT drain, another one ends at once, and SIGHUP reloads."""
        if not hasattr(signal, "SIGHUP"):  # Windows: the loop takes no handlers
            with super().capture_signals():
                yield
            return
        loop = asyncio.get_running_loop()
        numbers = {signal.Signals[name]: act for name, act in self._actions.items()}
        for number, act in numbers.items():
            loop.add_signal_handler(number, act)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # a supervisor had them blocked
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _drain(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

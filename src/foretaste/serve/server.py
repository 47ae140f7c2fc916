"""The service: its socket, and one process that answers, or several and one that watches them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from foretaste._util.settings import given_or_default
from foretaste._util.terminal import EXIT_MISTAKE, run_command
from foretaste.errors import MissingExtraError, SettingError, UnsupportedError
from foretaste.serve.config import ServeConfig

_BACKLOG = 2048
_SHORT_LIFE_S = 1.0
"""Of a worker; what dies sooner is started again no more often than this."""


def serve(
    runs: Sequence[Path | str],
    config: ServeConfig | None = None,
    *,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer requests from runs until SIGTERM or SIGINT, which drain it; SIGHUP reloads the runs.

    ``announce`` is called with the URL once all is loaded. Raises RunError where a run cannot be
    loaded, SettingError where the address cannot be listened on, MissingExtraError where the web
    server is not installed.
    """
    config = given_or_default("config", config, ServeConfig)
    paths = [Path(run) for run in runs]
    if not paths:
        raise SettingError("no run is given to serve; name one or more")
    config.token()  # SettingError before anything is loaded
    with ExitStack() as stack:
        if config.workers > 1:
            directory = stack.enter_context(TemporaryDirectory(prefix="foretaste-metrics-"))
            # Read as the library of the metrics is imported, which workers then share.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
            stack.callback(os.environ.pop, "PROMETHEUS_MULTIPROC_DIR")
        try:
            from foretaste.serve.events import EventStore
            from foretaste.serve.models import ModelStore
            from foretaste.serve.process import Process
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"the service needs {error.name}, which is not installed; pip install httptools "
                'prometheus-client "psycopg[binary]" pydantic sqlalchemy starlette uvicorn uvloop'
            ) from error
        store = ModelStore(paths, config.device, config.cache_mib << 20)
        if config.events is not None:
            with closing(EventStore(config.events)) as events:
                events.create()
        listener = stack.enter_context(_listening(config.host, config.port))
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

        def work(announces: bool) -> None:
            Process(store, config, listener).run(lambda: announce(url) if announces else None)

        if config.workers == 1:
            work(True)
        else:
            _Supervisor(config.workers, work, listener).run()


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens; connections wait in it until they are accepted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(
            f"host {host}, port {port} cannot be listened on: {reason}; name another --host or "
            "--port"
        ) from error
    with listener:
        yield listener


class _Supervisor:
    """Starts workers, starts those again that die, and passes signals on to them."""

    def __init__(
        self, num_workers: int, work: Callable[[bool], None], listener: socket.socket
    ) -> None:
        """``work`` is what a worker does; True is for the first of them."""
        if not hasattr(os, "fork"):
            raise UnsupportedError("workers share a socket by fork, which is not there; ask for 1")
        self._num_workers = num_workers
        self._work = work
        self._listener = listener
        self._started: dict[int, float] = {}
        """Time of the start of each worker, by its process."""
        self._is_ending = False
        self._has_restarted = False
        self._status = 0

    def run(self) -> None:
        """Return once all have ended; exits with the status of one that could not load its runs."""
        numbers = {signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            for number in range(self._num_workers):
                self._start(announces=number == 0)
            while self._started:
                number = signal.sigwait(numbers)
                if number == signal.SIGCHLD:
                    self._reap()
                elif number == signal.SIGHUP:
                    self._pass_on(signal.SIGHUP)
                else:
                    self._end()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._status:
            sys.exit(self._status)

    def _start(self, *, announces: bool) -> None:
        process = os.fork()
        if process:
            self._started[process] = time.monotonic()
            return
        # The ending signals are blocked until the event loop has its handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        status = 1
        try:
            run_command(lambda: self._work(announces))
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Take notice of workers that ended, and start others in their place."""
        from prometheus_client.multiprocess import mark_process_dead

        from foretaste.serve.telemetry import log

        while self._started:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            lived_s = time.monotonic() - self._started.pop(process)
            mark_process_dead(process)  # type: ignore[no-untyped-call]
            if self._is_ending:
                continue
            code = os.waitstatus_to_exitcode(status)
            log("worker_ended", process=process, status=code, lived_s=round(lived_s, 3))
            if code == EXIT_MISTAKE and not self._has_restarted:  # the runs cannot be loaded
                self._status = code
                self._end()
                continue
            self._has_restarted = True
            time.sleep(max(0.0, _SHORT_LIFE_S - lived_s))
            self._start(announces=False)

    def _end(self) -> None:
        self._is_ending = True
        # Once the workers have closed theirs, new connections are refused, not left to wait.
        self._listener.close()
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: signal.Signals) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                os.kill(process, number)

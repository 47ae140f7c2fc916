"""The server: its socket, Uvicorn and signals."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from foretaste._util.settings import given_or_default
from foretaste.errors import (
    ForetasteError,
    MissingExtraError,
    RunError,
    SettingError,
    UnsupportedError,
)
from foretaste.serve.config import ServeConfig

_BACKLOG = 2048

# Longer than proxies keep an idle connection. Otherwise the service could close a connection at the
# moment when a proxy sends a request on it.
_KEEP_ALIVE_S = 75


def serve(
    runs: Sequence[Path | str],
    config: ServeConfig | None = None,
    *,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve runs over HTTP until SIGTERM or SIGINT, which let running requests finish.

    ``announce`` is called with the URL once the runs are loaded, before the first request is read.

    Raises RunError if a run cannot be loaded, SettingError if the address cannot be used,
    MissingExtraError if the web server is not installed.
    """
    config = given_or_default("config", config, ServeConfig)
    paths = [Path(run) for run in runs]
    if not paths:
        raise SettingError("no run is given to serve; name one or more")
    config.token()  # raises SettingError before anything is loaded
    try:
        import uvicorn

        from foretaste.serve.app import Service
        from foretaste.serve.connections import BoundedProtocol
        from foretaste.serve.events import EventStore
        from foretaste.serve.log import log_by_lines
        from foretaste.serve.store import ModelStore
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the service needs {error.name}, which is not installed; pip install httptools "
            'prometheus-client "psycopg[binary]" pydantic sqlalchemy starlette uvicorn uvloop'
        ) from error
    # This raises RunError before anything is loaded.
    store = ModelStore(paths, config.device, rules_file=config.rules_file, items=config.items)
    if config.events is not None:
        with closing(EventStore(config.events)) as events:
            events.create()
    _check_may_wait()
    with _listening(config.host, config.port) as listener:
        address, port = listener.getsockname()[:2]
        url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        service = Service(store, config, when_ready=lambda: announce(url))
        served = uvicorn.Config(
            service.app(),
            http=BoundedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=config.drain_s,
        )
        log_by_lines(logging.WARNING)
        status: str | int | None = 0
        try:
            with _signals_that_drain(), suppress(KeyboardInterrupt):
                uvicorn.Server(served).run(sockets=[listener])
        except SystemExit as end:
            status = end.code
        if isinstance(service.failure, ForetasteError):
            raise service.failure
        if service.failure is not None:
            raise RunError(str(service.failure) or repr(service.failure)) from service.failure
        if status:
            sys.exit(status)


def _check_may_wait() -> None:
    """Raise UnsupportedError in a thread, which gets no signals, and in a running event loop."""
    way_out = "start `foretaste serve RUN` in a process of its own"
    if threading.current_thread() is not threading.main_thread():
        raise UnsupportedError(f"serve runs in the main thread alone; {way_out}")
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UnsupportedError(
            f"serve runs an event loop of its own, and one runs here, as in a notebook; {way_out}"
        )


@contextmanager
def _signals_that_drain() -> Iterator[None]:
    """Let SIGTERM and SIGHUP drain the service, which then ends with status 0."""
    with ExitStack() as stack:
        for number, handler in (
            # Uvicorn drains, then raises the signal again; a drained service has status 0.
            (signal.SIGTERM, lambda number, frame: sys.exit(0)),
            # A closed terminal; Uvicorn ignores it, so it becomes SIGTERM.
            (signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM)),
        ):
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens; connections wait in it until they are accepted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(
            f"cannot listen on host {host}, port {port}: {reason}; name another --host or --port"
        ) from error
    with listener:
        yield listener

"""The server: its socket, and Uvicorn with one or several worker processes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from foretaste._util.settings import given_or_default
from foretaste.errors import MissingExtraError, RunError, SettingError
from foretaste.serve.config import ServeConfig

_BACKLOG = 2048
_MAX_CONNECTIONS = 1000
"""Most connections of one worker; further ones are answered with 503."""

# Longer than proxies keep an idle connection. Otherwise the service could close a connection at the
# moment when a proxy sends a request on it.
_KEEP_ALIVE_S = 75

# Time in which a worker must answer its parent. On a busy machine its first imports take longer
# than Uvicorn's 5 s.
_HEALTH_S = 15


def serve(
    runs: Sequence[Path | str],
    config: ServeConfig | None = None,
    *,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve runs over HTTP until SIGTERM or SIGINT, which let running requests finish.

    ``announce`` is called in a thread, with the URL, once the runs are loaded. Several workers
    import the calling program anew, so it must call this under ``if __name__ == "__main__":``.

    Raises RunError if a run cannot be loaded, SettingError if the address cannot be used,
    MissingExtraError if the web server is not installed.
    """
    config = given_or_default("config", config, ServeConfig)
    paths = [Path(run) for run in runs]
    if not paths:
        raise SettingError("no run is given to serve; name one or more")
    config.token()  # SettingError before anything is loaded
    try:
        import uvicorn
        from uvicorn.supervisors import Multiprocess

        from foretaste.serve.app import app_of_worker
        from foretaste.serve.events import EventStore
        from foretaste.serve.models import ModelStore
        from foretaste.serve.telemetry import MULTIPROCESS, log_by_lines
        from foretaste.serve.workers import Workers
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the service needs {error.name}, which is not installed; pip install httptools "
            'prometheus-client "psycopg[binary]" pydantic sqlalchemy starlette uvicorn uvloop'
        ) from error
    # RunError before anything is loaded.
    store = ModelStore(paths, config.device, rules_file=config.rules_file, items=config.items)
    if config.events is not None:
        with closing(EventStore(config.events)) as events:
            events.create()
    with ExitStack() as stack:
        listener = stack.enter_context(_listening(config.host, config.port))
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="foretaste-serve-")))
        served = uvicorn.Config(
            partial(app_of_worker, store, config, directory),
            factory=True,
            workers=config.workers,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=config.drain_s,
            timeout_worker_healthcheck=_HEALTH_S,
        )
        workers = Workers(directory)
        is_over = threading.Event()

        def look_for_answers() -> None:
            while not is_over.wait(0.05):
                if any(state.answers for state in workers.read()):
                    announce(url)
                    return

        looking = threading.Thread(target=look_for_answers, name="announcing")
        looking.start()
        stack.callback(looking.join)
        stack.callback(is_over.set)
        status: str | int | None = 0
        try:
            if config.workers > 1:
                metrics = Path(stack.enter_context(TemporaryDirectory(prefix="foretaste-metrics-")))
                os.environ[MULTIPROCESS] = str(metrics)  # which workers inherit
                stack.callback(os.environ.pop, MULTIPROCESS)
                log_by_lines(logging.INFO)  # Uvicorn then logs which workers died
                Multiprocess(served, [listener]).run()
            else:
                for number, handler in (
                    # Uvicorn drains, then raises the signal again; a drained service has status 0.
                    (signal.SIGTERM, lambda number, frame: sys.exit(0)),
                    # A closed terminal; one process of Uvicorn ignores it, so it becomes SIGTERM.
                    (signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM)),
                ):
                    stack.callback(signal.signal, number, signal.signal(number, handler))
                with suppress(KeyboardInterrupt):
                    uvicorn.Server(served).run(sockets=[listener])
        except SystemExit as end:
            status = end.code
        if failure := workers.failure():
            raise RunError(failure)
        if status:
            sys.exit(status)


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

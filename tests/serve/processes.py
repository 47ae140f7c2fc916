"""The service in a process of its own, which runs the command and is always ended."""

from __future__ import annotations

import faulthandler
import http.client
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.forks import fork
from tests.stacks import END_S, abort

LIMIT_S = 60.0


class Served:
    """A service that was started by the command."""

    def __init__(self, process: BaseProcess, port: int) -> None:
        self.process = process
        self.port = port

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of a request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            headers = {"content-type": "application/json"}
            connection.request(method, path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def text(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def ended(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Send a signal; return the exit status and the lines of the log."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        self.process.join(LIMIT_S)
        if self.process.exitcode is None:
            raise TimeoutError("the service did not end")
        return self.process.exitcode, self.log()

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log so far."""
        return [json.loads(line) for line in list(self.lines)]

    lines: list[str]
    said: str


@contextmanager
def serve(*arguments: object, cwd: Path | None = None, patch: str = "") -> Iterator[Served]:
    """Yield a service once it reports that it answers; its process ends with the block.

    ``patch`` is Python that its process runs first. An error of a limit gets its log and the
    stacks of its process as a note.
    """
    lines: list[str] = []
    words = ["serve", *map(str, arguments), "--port", "0"]
    with ExitStack() as stack:
        (stdout, child_stdout), (stderr, child_stderr) = (Pipe(duplex=False) for _ in range(2))
        process = fork(_serve, words, cwd, patch, child_stdout, child_stderr)
        child_stdout.close()
        child_stderr.close()
        printed, logged = (
            stack.enter_context(open(stack.enter_context(pipe).fileno(), closefd=False))
            for pipe in (stdout, stderr)
        )
        reader = threading.Thread(target=lambda: lines.extend(logged), daemon=True)
        reader.start()
        stack.callback(reader.join, LIMIT_S)
        stack.callback(_end, process)
        try:
            said = printed.readline()  # ends with the process at the latest
            found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
            if found is None:
                reader.join(LIMIT_S)
            assert found, "".join(lines)
            served = Served(process, int(found[1]))
            served.lines, served.said = lines, said
            yield served
        except TimeoutError as error:
            # `faulthandler` writes the stacks of all threads of the service to its stderr.
            abort([process])
            reader.join(END_S)
            error.add_note("".join(lines))
            raise


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(LIMIT_S)
    process.kill()
    process.join(LIMIT_S)


def _serve(
    words: Sequence[str], cwd: Path | None, patch: str, stdout: Connection, stderr: Connection
) -> None:
    """Run the command in this process."""
    import torch

    if cwd is not None:
        os.chdir(cwd)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for number, pipe in ((1, stdout), (2, stderr)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    faulthandler.enable(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    exec(patch, {})
    sys.argv[1:] = words
    from foretaste.__main__ import main

    main()


def wait_for(condition: Any) -> Any:
    """The first true value of a condition; TimeoutError if it is never true."""
    ends = monotonic() + LIMIT_S
    while not (found := condition()):
        if monotonic() > ends:
            raise TimeoutError("waited in vain")
        sleep(0.05)
    return found

"""The service in processes of its own, started like a user starts it, and always ended."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from foretaste.serve.config import ServeConfig
from tests.stacks import END_S

LIMIT_S = 60.0
SOURCE = Path(sys.modules[ServeConfig.__module__].__file__ or "").parents[2]


class Served:
    """A service that was started by the command."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
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
        self.process.send_signal(number)
        status = self.process.wait(LIMIT_S)
        return status, self.log()

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log so far."""
        return [json.loads(line) for line in list(self.lines)]

    lines: list[str]
    said: str


@contextmanager
def serve(*arguments: object, cwd: Path | None = None, patch: str = "") -> Iterator[Served]:
    """Yield a service once it reports that it answers; its processes end with the block.

    ``patch`` is Python that its process runs first. An error of a limit gets its log and the
    stacks of its processes as a note.
    """
    program = ["-c", f"{patch}\nfrom foretaste.__main__ import main\nmain()"]
    command = [sys.executable, *(program if patch else ["-m", "foretaste"]), "serve"]
    command += [*map(str, arguments), "--port", "0"]
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "PYTHONFAULTHANDLER": "1"},
        start_new_session=True,
    )
    lines: list[str] = []
    assert process.stderr is not None
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        said = process.stdout.readline()  # ends with the process at the latest
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert found, "".join(lines)
        served = Served(process, int(found[1]))
        served.lines, served.said = lines, said
        yield served
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        # `faulthandler` writes the stacks of all processes of the service to their stderr.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGABRT)
        reader.join(END_S)
        error.add_note("".join(lines))
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait(LIMIT_S)
        reader.join(LIMIT_S)
        process.stdout.close()
        process.stderr.close()


def children(process: int) -> set[int]:
    """Processes that a process has started and that have not been reaped."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return {int(word) for word in text.split()}


def command_of(process: int) -> str:
    """The command line of a process; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def is_running(process: int) -> bool:
    """Whether a process runs; False also for a zombie."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def wait_for(condition: Any) -> Any:
    """The first true value of a condition; TimeoutError if it is never true."""
    ends = monotonic() + LIMIT_S
    while not (found := condition()):
        if monotonic() > ends:
            raise TimeoutError("waited in vain")
        sleep(0.05)
    return found

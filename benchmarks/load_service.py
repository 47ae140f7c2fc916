"""A service pinned to one core, and the generator of requests (``load.c``) on another."""

from __future__ import annotations

import http.client
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

SERVICE_CORE = "0"
GENERATOR_CORE = "1"
GRACE_S = 10
LIMIT_S = 60.0
_HEAD = struct.Struct("=qqqiI")
"""Record of an answer: due, sent, answered, status, bytes of the body."""
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE")


class Service:
    """``foretaste serve`` of a link that leads to a run, on one core with one thread."""

    def __init__(self, run: Path, options: Sequence[str], folder: str) -> None:
        self._link = Path(folder) / "current"
        self.lead(run.resolve())
        self._log = Path(folder) / "log"
        command = ["taskset", "-c", SERVICE_CORE, sys.executable, "-m", "foretaste", "serve"]
        command += [str(self._link), "--port", "0", "--device", "cpu", *options]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        _put_first(self.process.pid)

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if " at http://" not in said:
            sys.exit(f"the service did not begin: {self._log.read_text()[-2000:]}")
        self.port = int(said.split(" at ")[1].split(";")[0].rpartition(":")[2])
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def lead(self, run: Path) -> None:
        """Point the link to another run."""
        beside = self._link.with_name("next")
        beside.symlink_to(run)
        beside.replace(self._link)

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request("POST", path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """The metrics without labels, by name."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        families = text_string_to_metric_families(text)
        return {s.name: s.value for family in families for s in family.samples if not s.labels}

    def cpu_s(self) -> float:
        """Seconds of the processor that the service has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sent:
    """Times of requests and answers, in order."""

    due_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    answered_ns: NDArray[np.int64]
    status: NDArray[np.int64]
    bodies: Sequence[bytes]
    cpu_share: float
    """Share of its core that the service used from the first request to the end."""

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        return (self.answered_ns - self.due_ns) / 1e6

    def lag_ms(self, percentile: float) -> float:
        """Milliseconds by which requests were sent late."""
        end_ns = self.due_ns[-1] + GRACE_S * 1_000_000_000  # requests that were never sent
        lag_ns = np.where(self.sent_ns < 0, end_ns, self.sent_ns) - self.due_ns
        return round(float(np.percentile(lag_ns / 1e6, percentile)), 4)


def fire(
    service: Service, due_ns: NDArray[np.int64], bodies: Sequence[bytes], connections: int
) -> Sent:
    """Send ``POST /v1/recommend`` with these bodies at these times."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "schedule").open("wb") as file:
            for due, body in zip(due_ns.tolist(), bodies, strict=True):
                request = _request(body)
                file.write(struct.pack("=qI", due, len(request)) + request)
        command = ["taskset", "-c", GENERATOR_CORE, _generator(), str(service.port)]
        command += [str(connections), str(GRACE_S), *(str(folder / n) for n in ("schedule", "a"))]
        before_s, started = service.cpu_s(), time.monotonic()
        subprocess.run(command, check=True)
        share = (service.cpu_s() - before_s) / (time.monotonic() - started)
        content = (folder / "a").read_bytes()
    heads, found, place = [], [], 0
    while place < len(content):
        heads.append(_HEAD.unpack_from(content, place))
        place += _HEAD.size + heads[-1][-1]
        found.append(content[place - heads[-1][-1] : place])
    due, sent, answered, status, _ = np.array(heads, dtype=np.int64).reshape(-1, 5).T
    return Sent(due, sent, answered, status, found, share)


def _put_first(session: int) -> None:
    """Prefer this session's processes on the processor if permitted: other processes are not
    measured."""
    with suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text("-20")
        os.setpriority(os.PRIO_PGRP, session, -20)


def _request(body: bytes) -> bytes:
    head = f"POST /v1/recommend HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"content-type: application/json\r\n\r\n" + body


@cache
def _generator() -> str:
    """The generator, compiled if it changed since the last compilation."""
    source = Path(__file__).with_name("load.c")
    folder = Path(__file__).with_name("__pycache__")
    folder.mkdir(exist_ok=True)
    binary = folder / "load"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["gcc", *_FLAGS, str(source), "-o", str(binary)], check=True)
    return str(binary)

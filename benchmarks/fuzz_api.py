"""The service fuzzed from its own OpenAPI: no 5xx, no growing memory, nothing echoed as a page.

    python -m benchmarks.fuzz_api --minutes 60 --directory fuzzed

Needs schemathesis (``pip install schemathesis``), which makes requests of the document: its
examples, values at every limit, then fitting and unfitting ones drawn until the time is over. Each
response is checked against the document, and for headers that let nobody take it for a page. The
directory gets the runs, ``found`` with what schemathesis says, the service's ``log``, and
``memory.jsonl``. Exits with 1 where something was found. ``--place`` names another database of
events than a file there, such as a URL of PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.kill_events import SHAPE
from foretaste.data import generate, prepare
from foretaste.training import train

MODELS = ("ease", "gmf", "vae", "popularity")
EVERY_S = 10.0
CHECKS = """
import schemathesis

@schemathesis.check
def no_page(ctx, response, case):
    headers = {name.lower(): value for name, value in response.headers.items()}
    assert headers["content-type"] == ["application/json"], headers
    assert headers["x-content-type-options"] == ["nosniff"], headers
    assert "location" not in headers, headers
"""
SETTINGS = """
[checks]
# It draws 7.0 as an integer, which is no id here.
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = [400, 401, 404, 405, 413, 415, 421, 422]
"""


def make_runs(directory: Path) -> list[Path]:
    """A run of each model, on generated data."""
    runs = [directory / model for model in MODELS]
    if not runs[-1].exists():
        data = prepare(generate(SHAPE).table, directory / "data", protocol="none")
        for run in runs:
            train(run.name, data, run=run)
    return runs


def memory_mib(process: int) -> float:
    """What a process has in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmRSS"))
    return int(kib) / 1024


def fuzz(directory: Path, place: str, minutes: float, seed: int) -> bool:
    """True where schemathesis found nothing and the service said nothing of mistakes of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    runs = make_runs(directory)
    (directory / "checks.py").write_text(CHECKS)
    (directory / "settings.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "foretaste", "serve", *map(str, runs)]
    command += ["--port", "0", "--device", "cpu", "--events", place]
    with (directory / "log").open("w") as log, (directory / "found").open("w") as found:
        served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert served.stdout is not None
            url = served.stdout.readline().split(" at ")[1].split(";")[0]
            command = ["schemathesis", "--config-file", "settings.toml", "run"]
            command += [f"{url}/openapi.json", "--max-time", str(round(60 * minutes))]
            command += ["--seed", str(seed), "--no-color", "--no-shrink"]
            hooks = {"SCHEMATHESIS_HOOKS": "checks", "PYTHONPATH": str(directory)}
            fuzzer = subprocess.Popen(
                command, cwd=directory, stdout=found, stderr=found, env=os.environ | hooks
            )
            watch(served.pid, fuzzer, directory / "memory.jsonl")
        finally:
            served.terminate()
            status = served.wait(timeout=60)
    return report(directory) and status == 0 and fuzzer.returncode == 0


def watch(process: int, fuzzer: subprocess.Popen[bytes], output: Path) -> None:
    """Write down the memory of a process every few seconds, until the fuzzer ends."""
    started = time.monotonic()
    with output.open("w") as file:
        while fuzzer.poll() is None:
            row = {"elapsed_s": time.monotonic() - started, "memory_mib": memory_mib(process)}
            file.write(json.dumps(row) + "\n")
            file.flush()
            time.sleep(EVERY_S)


def report(directory: Path) -> bool:
    """Print what the log and the memory say; True where no request was answered with 5xx."""
    lines = [json.loads(line) for line in (directory / "log").read_text().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    statuses = Counter(line["status"] for line in requests)
    print(f"{len(requests)} requests: {dict(sorted(statuses.items()))}")
    memory = [json.loads(line) for line in (directory / "memory.jsonl").read_text().splitlines()]
    for row in memory[:: max(1, len(memory) // 10)]:
        print(f"  after {row['elapsed_s']:6.0f} s {row['memory_mib']:8.1f} MiB")
    print((directory / "found").read_text()[-600:])
    return all(status < 500 for status in statuses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--place", help="events.db in the directory unless given")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    directory = asked.directory.absolute()
    place = asked.place or str(directory / "events.db")
    sys.exit(not fuzz(directory, place, asked.minutes, asked.seed))


if __name__ == "__main__":
    main()

"""Services killed at random moments while they take events: none lost, none twice, all agree.

    python -m benchmarks.kill_events --kills 200 --events 10000 --directory kills

Clients send events to a service of two workers, each again and again until it is acknowledged. At a
random moment a worker, or the service with all its processes, is killed with SIGKILL, and started
again. Then the database is read: each event that was acknowledged, in this round or an earlier one,
must be there once. Each user is asked for on many connections, which any worker takes: all answers
must be the same and lack what the user has. A line of JSON for each kill is appended to
``kills.jsonl`` in the directory; a series that was interrupted goes on from what is there.
``--place`` names another database than a file there, such as a URL of PostgreSQL.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from foretaste.data import GenerateConfig, generate, prepare
from foretaste.serve.events import EventStore
from foretaste.training import train

NUM_USERS = 4
NUM_ASKED = 8
LIMIT_S = 60.0
SHAPE = GenerateConfig(num_users=300, num_items=200, num_interactions=9000)


class Service:
    """``foretaste serve`` with two workers, started again where it was killed."""

    def __init__(self, run: Path, place: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "foretaste", "serve", str(run), "--port", "0"]
        self._command += ["--workers", "2", "--device", "cpu", "--events", place]
        self._log = log
        self.start()

    def start(self) -> None:
        """Return once it answers."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split(" at ")[1].split(";")[0]

    def kill(self, chance: random.Random) -> str:
        """Kill a worker, or all; what was killed."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        workers = [one for one in children if "spawn_main" in _command_of(one)]
        if workers and chance.random() < 0.5:
            os.kill(int(chance.choice(workers)), signal.SIGKILL)
            return "worker"
        self.end()
        self.start()
        return "service"

    def end(self) -> None:
        """Kill every process of it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str, body: Any) -> Any:
        """The answer to a request on a connection of its own; None where there is none."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
                return json.load(response)
        except (http.client.HTTPException, OSError, ValueError):
            return None


def _command_of(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def new_user(number: int) -> str:
    """The id of a user whom the run does not know."""
    return str(10**6 + number)


def send(service: Service, events: list[dict[str, Any]], acknowledged: list[str]) -> None:
    """Send events one by one, each until it is acknowledged."""
    for event in events:
        ends = time.monotonic() + LIMIT_S
        while service.ask("/v1/events", {"events": [event]}) is None:
            if time.monotonic() > ends:
                sys.exit(f"event {event} was not taken within {LIMIT_S:.0f} s")
            time.sleep(0.02)
        acknowledged.append(event["event_id"])


def kill_once(service: Service, number: int, num_events: int, seed: int) -> dict[str, Any]:
    """Send events from threads and kill meanwhile; the row to append."""
    chance = random.Random(f"{seed} {number}")
    acknowledged: list[str] = []
    threads = []
    for user in range(NUM_USERS):
        events = [
            {"event_id": f"{number}-{user}-{one}", "user_id": new_user(user), "time": number}
            | {"item_id": chance.randrange(1, SHAPE.num_items)}
            for one in range(user, num_events, NUM_USERS)
        ]
        threads.append(threading.Thread(target=send, args=(service, events, acknowledged)))
    for thread in threads:
        thread.start()
    time.sleep(chance.uniform(0.0, 0.3))
    before = len(acknowledged)
    killed = service.kill(chance)
    for thread in threads:
        thread.join()
    return {"killed": killed, "before_kill": before, "acknowledged": acknowledged}


def check(service: Service, store: EventStore, acknowledged: set[str]) -> dict[str, int]:
    """The events that are lost or there twice, and the users of whom answers differ."""
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT event_id FROM events").scalars().all()
    disagreed = 0
    users = [new_user(number) for number in range(NUM_USERS)]
    own = store.items_of(users)
    for user in users:
        body = {"users": [{"user_id": user}], "k": 20}
        found = [service.ask("/v1/recommend", body) for _ in range(NUM_ASKED)]
        found = [one for one in found if one is not None]
        listed = {str(item["item_id"]) for one in found for item in one["answers"][0]["items"]}
        disagreed += any(one != found[0] for one in found) or not listed.isdisjoint(own[user])
    return {
        "lost": len(acknowledged - set(rows)),
        "twice": len(rows) - len(set(rows)),
        "disagreed": disagreed,
    }


def series(num_kills: int, num_events: int, directory: Path, place: str, seed: int) -> None:
    """Kill until the directory counts as many, then print what came of it."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "run").exists():
        data = prepare(generate(SHAPE).table, directory / "data", protocol="none")
        train("ease", data, run=directory / "run")
    output = directory / "kills.jsonl"
    rows = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    acknowledged = {event for row in rows for event in row["acknowledged"]}
    service = Service(directory / "run", place, directory / "log")
    store = EventStore(place)
    try:
        for number in range(len(rows), num_kills):
            row = kill_once(service, number, num_events // num_kills, seed)
            acknowledged |= set(row["acknowledged"])
            rows.append(row | check(service, store, acknowledged))
            with output.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    finally:
        service.end()
        store.close()
    services = sum(row["killed"] == "service" for row in rows)
    print(f"{len(rows)} kills, {services} of them of all processes; {len(acknowledged)} events")
    for problem in ("lost", "twice", "disagreed"):
        print(f"  {problem:10}{sum(row[problem] for row in rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--place", help="events.db in the directory unless given")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    place = asked.place or str(asked.directory / "events.db")
    series(asked.kills, asked.events, asked.directory, place, asked.seed)


if __name__ == "__main__":
    main()

"""The service under load: one core serves, the other sends requests in an open loop.

    python -m benchmarks.load steady runs/ease --rate 1000 --seconds 20 --output rows.jsonl
    python -m benchmarks.load ramp runs/neumf --rate 100 --top 1000 --output rows.jsonl
    python -m benchmarks.load reload runs/vae --other runs/vae-2 --reloads 1000 --output rows.jsonl

Requests, one user each, are sent by ``load.c`` at random times that do not depend on the answers (a
Poisson process), and latency counts from the time that a request was due. If more than one in a
thousand was sent more than 1 ms late, the run is void: its row is kept and marked, and it is run
again, up to ``--tries`` times. Every answer is compared with the list that the named run gives in
this process. Rows are appended to ``--output``; a case with a valid row is left out, and counting
of reloads continues. Options behind ``--`` go to ``foretaste serve``.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.load_service import Sent, Service, fire
from foretaste.bench.rows import OURS, environment
from foretaste.recommend import load as load_run
from foretaste.runs import Run

K = 10
MAX_LAG_MS = 1.0
HISTORY_LENGTH = 20
RAMP_STEPS = 9
RELOADS_OF_A_ROW = 100
SECONDS_OF_A_LOAD = 5.0
_FURTHER = 5
_TOLERANCE = 1e-4
CLOCK = "from the time that a request was due to the last byte of its answer"


class Lists:
    """The lists that runs give the users of a load, by the digest of the run."""

    def __init__(self, users: str, count: int, seed: int) -> None:
        self._users = users
        self._draw = np.random.default_rng(seed)
        self._count = count
        self.asked: list[dict[str, Any]] = []
        self._lists: dict[str, list[dict[Any, float]]] = {}

    def add(self, path: Path) -> None:
        """Compute the lists of a run; the first one's users are asked about."""
        run = Run.open(path)
        recommender = load_run(run, "cpu")
        if not self.asked:
            ids = self._draw.permutation(np.array(run.users.ids(), dtype=object))[: self._count]
            self.asked = [{"user_id": one} for one in ids]
            if self._users == "new":
                rows = recommender.known_histories.rows(run.users.lookup(ids))
                self.asked = [
                    {"history": run.items.ids(row.item_index[:HISTORY_LENGTH])}
                    for row in (rows[number : number + 1] for number in range(len(rows)))
                ]
        if self._users == "new":
            found = recommender.recommend_for([one["history"] for one in self.asked], K + _FURTHER)
        else:
            found = recommender.recommend([one["user_id"] for one in self.asked], K + _FURTHER)
        self._lists[run.open_weights().digest[:16]] = [
            dict(zip(answer.item_ids, answer.scores, strict=True)) for answer in found
        ]

    def bodies(self) -> list[bytes]:
        return [json.dumps({"users": [one]}).encode() for one in self.asked]

    def is_right(self, number: int, body: bytes) -> bool:
        """Whether an answer equals the list of the run with its digest, up to the rounding of
        scores."""
        answer = json.loads(body)
        expected = self._lists.get(answer["digest"])
        if expected is None or len(answer["answers"]) != 1:
            return False
        listed, scores = answer["answers"][0], expected[number]
        if listed["user_id"] != self.asked[number].get("user_id") or len(listed["items"]) != min(
            K, len(scores)
        ):
            return False
        near = _TOLERANCE * max(map(abs, scores.values()))
        return all(
            abs(item["score"] - best) <= near
            and abs(scores.get(item["item_id"], np.inf) - item["score"]) <= near
            for item, best in zip(listed["items"], scores.values(), strict=False)
        )


@dataclass(frozen=True)
class Load:
    """Times of requests, and the user of each."""

    due_ns: NDArray[np.int64]
    number: NDArray[np.int64]

    @classmethod
    def of(cls, steps: Sequence[tuple[float, float]], users: int, seed: int) -> Load:
        """Random times at these rates for these seconds, one after the other."""
        draw = np.random.default_rng(seed)
        start, times = 0.0, []
        for rate, seconds in steps:
            count = draw.poisson(rate * seconds)
            times.append(start + np.sort(draw.random(count)) * seconds)
            start += seconds
        due = np.concatenate(times)
        # Every user comes once before any user comes again, so that no cached answer helps early.
        rounds = [draw.permutation(users) for _ in range(-(-len(due) // users))]
        return cls((due * 1e9).astype(np.int64), np.concatenate(rounds)[: len(due)])

    def fire(self, service: Service, lists: Lists, connections: int) -> tuple[Sent, dict[str, Any]]:
        """Send all; each request, and the counts."""
        bodies = lists.bodies()
        sent = fire(service, self.due_ns, [bodies[number] for number in self.number], connections)
        wrong = sum(
            not lists.is_right(number, body)
            for number, body, status in zip(self.number, sent.bodies, sent.status, strict=True)
            if status == 200
        )
        counts = {
            "requests": len(self.due_ns),
            "answered": int((sent.status == 200).sum()),
            "wrong": wrong,
            "refused": int((sent.status == 503).sum()),
            "late": int((sent.status == 504).sum()),
            "lost": int((sent.status == 0).sum()),
            "lag_ms": {"p99.9": sent.lag_ms(99.9), "max": sent.lag_ms(100)},
            "is_void": sent.lag_ms(99.9) > MAX_LAG_MS,
            "cpu_share": round(sent.cpu_share, 3),
        }
        return sent, counts


def latencies(sent: Sent, which: NDArray[np.bool_] | None = None) -> dict[str, float]:
    """Milliseconds of the requests that were answered with a list."""
    is_answered = sent.status == 200
    if which is not None:
        is_answered = is_answered & which
    found = sent.latency_ms[is_answered]
    if not len(found):
        return {}
    named = {"average": found.mean(), "max": found.max()}
    named |= {f"p{share}": np.percentile(found, share) for share in (50, 90, 99)}
    return {name: round(float(value), 3) for name, value in named.items()}


def steady(asked: argparse.Namespace, service: Service, lists: Lists) -> dict[str, Any]:
    """Measure one rate."""
    warm = Load.of([(asked.rate / 2, asked.warm_up_s)], len(lists.asked), asked.seed + 1000)
    warm.fire(service, lists, asked.connections)
    before = service.metrics()
    load = Load.of([(asked.rate, asked.seconds)], len(lists.asked), asked.seed)
    sent, counts = load.fire(service, lists, asked.connections)
    after = service.metrics()
    batches, requests = (
        after[name] - before[name]
        for name in ("foretaste_batch_requests_count", "foretaste_batch_requests_sum")
    )
    batch = round(requests / max(1, batches), 2)
    return counts | {"latency_ms": latencies(sent), "requests_per_batch": batch}


def ramp(asked: argparse.Namespace, service: Service, lists: Lists) -> dict[str, Any]:
    """Measure from one rate up to another and back, in steps."""
    half = np.linspace(asked.rate, asked.top, RAMP_STEPS // 2 + 1)
    rates = [*half, *half[-2::-1]]
    load = Load.of([(rate, asked.seconds) for rate in rates], len(lists.asked), asked.seed)
    sent, whole = load.fire(service, lists, asked.connections)
    steps = []
    for step, rate in enumerate(rates):
        which = load.due_ns // int(asked.seconds * 1e9) == step
        status = sent.status[which]
        counts = {"answered": int((status == 200).sum()), "refused": int((status == 503).sum())}
        steps.append({"rate": round(rate)} | counts | latencies(sent, which))
    return whole | {"steps": steps}


def reload(asked: argparse.Namespace, service: Service, lists: Lists) -> dict[str, Any]:
    """Measure while two runs replace each other again and again."""
    found: list[dict[str, Any]] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            load = Load.of(
                [(asked.rate, SECONDS_OF_A_LOAD)], len(lists.asked), asked.seed + len(found)
            )
            found.append(load.fire(service, lists, asked.connections)[1])

    asking = threading.Thread(target=ask)
    asking.start()
    places, failed, started = [asked.run.resolve(), asked.other.resolve()], 0, time.monotonic()
    try:
        for number in range(RELOADS_OF_A_ROW):
            service.lead(places[1 - number % 2])
            failed += service.post("/v1/reload", b"{}")[0] != 200
        elapsed_s = time.monotonic() - started
    finally:
        is_over.set()
        asking.join()
    names = ("requests", "answered", "wrong", "refused", "late", "lost")
    counts: dict[str, Any] = {name: sum(one[name] for one in found) for name in names}
    counts |= {"reloads": RELOADS_OF_A_ROW, "reloads_failed": failed, "is_void": False}
    return counts | {"reload_ms": round(1000 * elapsed_s / RELOADS_OF_A_ROW, 1)}


MEASURES: dict[str, Callable[[argparse.Namespace, Service, Lists], dict[str, Any]]] = {
    "steady": steady,
    "ramp": ramp,
    "reload": reload,
}


def case_of(asked: argparse.Namespace) -> dict[str, Any]:
    """The case of a row: its options without measurements."""
    names = {
        "steady": ("users", "rate", "seconds"),
        "ramp": ("users", "rate", "top", "seconds"),
        "reload": ("users", "rate"),
    }
    case = {"case": asked.measure} | {name: getattr(asked, name) for name in names[asked.measure]}
    run = Run.open(asked.run)
    return case | {
        "run": asked.run.name,
        "items": run.num_items,
        "connections": asked.connections,
        "serve": " ".join(asked.serve),
    }


def measure(asked: argparse.Namespace) -> None:
    """Append the rows that are still missing."""
    case = case_of(asked)
    rows = []
    if asked.output.exists():
        rows = [json.loads(line) for line in asked.output.read_text().splitlines()]
    valid = [row for row in rows if row["case"] == case and not row["measured"]["is_void"]]
    missing = asked.repeats - len(valid)
    if asked.measure == "reload":
        missing = -(-asked.reloads // RELOADS_OF_A_ROW) - len(valid)
    if missing <= 0:
        print(f"{case}: there already")
        return
    lists = Lists(asked.users, asked.num_users, asked.seed)
    lists.add(asked.run)
    if asked.other:
        lists.add(asked.other)
    run = Run.open(asked.run)
    for _ in range(missing):
        for _ in range(asked.tries):
            with TemporaryDirectory() as folder, Service(asked.run, asked.serve, folder) as service:
                measured = MEASURES[asked.measure](asked, service, lists)
            row = {"benchmark": "serve", "model": run.config.model, "side": OURS, "case": case}
            row |= {"clock": CLOCK, "measured": measured} | environment(torch.device("cpu"))
            with asked.output.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(case), json.dumps(measured), sep="\n  ", flush=True)
            if not measured["is_void"]:
                break


def main(tokens: Sequence[str] | None = None) -> None:
    tokens = list(sys.argv[1:] if tokens is None else tokens)
    end = tokens.index("--") if "--" in tokens else len(tokens)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("run", type=Path)
    parser.add_argument("--other", type=Path, help="run of the same items that replaces it")
    parser.add_argument("--users", choices=("known", "new"), default="known")
    parser.add_argument("--num-users", type=int, default=1_000_000, help="at most, drawn by chance")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    parser.add_argument("--top", type=float, default=2000.0, help="highest rate of a ramp")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a rate")
    parser.add_argument("--warm-up-s", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--reloads", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args(tokens[:end])
    asked.serve = tokens[end + 1 :]
    measure(asked)


if __name__ == "__main__":
    main()

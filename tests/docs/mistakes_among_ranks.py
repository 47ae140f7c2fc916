"""Mistakes in starting several ranks; one process plays the first of two."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from foretaste.ops.ranks import Ranks
from tests.docs.mistakes import Mistake

_TRAIN = "train vae data --run runs/ranks"
_FIRST_OF_TWO = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}


def _environment(**variables: str) -> Callable[[], AbstractContextManager[object]]:
    @contextmanager
    def within() -> Iterator[None]:
        command = ["foretaste", *shlex.split(_TRAIN)]
        with patch.dict(os.environ, variables), patch.object(sys, "argv", command):
            yield

    return within


@contextmanager
def _another_version() -> Iterator[None]:
    """The second rank is a thread, of another version."""
    import torch.distributed as dist

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    has_met = threading.Event()

    def join() -> None:
        from foretaste.launch import rendezvous

        while not has_met.wait(0.01):
            if store.check(["foretaste/token"]):
                token = store.get("foretaste/token").decode()
                if store.check([f"{token}/go"]):
                    return
                facts = rendezvous._facts() | {"foretaste": "0.0.1"}
                member = {"rank": 1, "host": "node2", "machine": "", "process": 4711}
                own = {"id": "1", "member": member | {"started_at": ""}, "facts": facts}
                store.set(f"{token}/1", json.dumps(own))

    thread = threading.Thread(target=join)
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "FORETASTE_JOIN_TIMEOUT_S": "30"}
    with _environment(**_FIRST_OF_TWO, **address, **agent)():
        thread.start()
        try:
            yield
        finally:
            has_met.set()
            thread.join(10)


class _SecondOfTwo(Ranks):
    """A rank whose first one has a run that it does not see itself."""

    def on_first(self, action: Callable[[], Any]) -> Any:
        return "/data/runs/vae"

    def on_each(self, action: Callable[[], Any]) -> list[Any]:
        return [action()]


@contextmanager
def _without_the_run() -> Iterator[None]:
    with (
        patch("foretaste.training.verbs.joined", lambda: nullcontext(_SecondOfTwo(1, 2))),
        patch("foretaste.runs.loading.SEEN_WITHIN_S", 0.1),
    ):
        yield


RANKS = {
    "Started by another launcher": Mistake(
        command=_TRAIN,
        within=_environment(
            OMPI_COMM_WORLD_SIZE="8", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_LOCAL_SIZE="8"
        ),
    ),
    "Half of torchrun's variables": Mistake(command=_TRAIN, within=_environment(RANK="0")),
    "A command of one process": Mistake(
        command="prepare ratings.csv", within=_environment(**_FIRST_OF_TWO)
    ),
    "A rank that never comes": Mistake(
        command=_TRAIN,
        within=_environment(
            **_FIRST_OF_TWO,
            MASTER_ADDR="localhost",
            MASTER_PORT="0",
            FORETASTE_JOIN_TIMEOUT_S="0.2",
        ),
    ),
    "Ranks that differ": Mistake(command=_TRAIN, within=_another_version),
    "A rank that does not see the run": Mistake(
        command="train --resume runs/vae", within=_without_the_run
    ),
}

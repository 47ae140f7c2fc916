"""Mistakes of those who serve runs."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.databases import write_sqlite
from tests.docs.mistakes import Mistake, run


@contextmanager
def taken_port() -> Iterator[None]:
    """As where another program listens on port 8000."""

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(98, "Address already in use")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_server", refuse)
        yield


@contextmanager
def without_uvicorn() -> Iterator[None]:
    """As where the extra is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "uvicorn", None)
        patch.delitem(sys.modules, "foretaste.serve.process", raising=False)
        yield


def copy_run() -> None:
    shutil.copytree("runs/vae", "old/vae")


def make_other_events() -> None:
    write_sqlite(Path("shop.db"), "CREATE TABLE events (id, user_id, item_id, time)")


SERVING = {
    "An address that others can reach": run("serve runs/vae --host 0.0.0.0"),
    "A token that is none": run(
        "serve runs/vae --host 0.0.0.0 --token-file token", token="short\n"
    ),
    "A token file that is not there": run("serve runs/vae --token-file token"),
    "A host to allow that is no name": run(
        "serve runs/vae --allowed-hosts https://shop.example.com"
    ),
    "A port that is taken": Mistake(command="serve runs/vae", within=taken_port),
    "No run to serve": run("serve"),
    "Two runs of one name": run("serve runs/vae old/vae", copy_run),
    "A place of events that cannot be": run("serve runs/vae --events mysql://host/shop"),
    "Events in a folder that is not there": run("serve runs/vae --events none/events.db"),
    "Events in a database of something else": run(
        "serve runs/vae --events shop.db", make_other_events
    ),
    "Serving without the extra": Mistake(command="serve runs/vae", within=without_uvicorn),
}

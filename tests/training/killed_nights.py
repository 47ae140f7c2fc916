"""Trainings that replace a run, killed with SIGKILL before the first validation, in the middle, and
before each call to the system that changes a file while the new run is put in place.

``python -m tests.training.killed_nights`` prints a JSON line per kill. One process imports torch;
every training is a child that it forks.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from foretaste import load
from foretaste._util import files
from foretaste.data import open_dataset
from foretaste.models.linear.config import EaseConfig
from foretaste.models.linear.ease import Ease
from foretaste.runs import Run, list_runs
from foretaste.training import resume
from tests.ops.cases import histories_of
from tests.training.kills import Campaign, say
from tests.training.test_interruption import Killing
from tests.training.trainings import contents, numbers_of, run_of, weights_of

MOMENTS = ("step 1-1", "validation", "epoch 2", "test")
SETTINGS: dict[str, Any] = {"batch_size": 1000, "checkpoint_every_s": 0.0}
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "ctypes.dlsym"}
"""Audited calls that change files; ``ctypes.dlsym`` comes before an exchange."""


def is_change(event: str, arguments: Any) -> bool:
    """Whether a call changes files: a kill before another call leaves the same files."""
    return event in CHANGES or (event == "open" and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR)))


class Nights(Campaign):
    """A run that answers, and trainings that should replace it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, 0)
        # A process loads Numba at its first fit, which took each child 0.5 s of the processor.
        Ease(EaseConfig(), 2, 3).fit(histories_of([{0, 1}, {2}], 3), lambda *_: None)
        self.path = directory / "place" / "run"
        self.in_child(self.make_dataset)
        self.in_child(partial(self.train_at, directory / "yesterday" / "run", "popularity"))

    def train_at(self, path: Path, model: str, **more: Any) -> None:
        run_of(model, open_dataset(self.directory / "data"), path, **SETTINGS | more)

    def night(self, model: str = "gmf", **more: Any) -> None:
        """Run tonight's command."""
        self.train_at(self.path, model, overwrite=True, **more)

    def resumed(self) -> None:
        resume(self.path)

    def dying_at_call(self, number: int, can_exchange: bool) -> None:
        """Run tonight's command, killed before a call while the new run is put in place."""
        take_place, num_calls = Run.take_place, count(1)

        def counted(event: str, arguments: object) -> None:
            if is_change(event, arguments) and next(num_calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def watched(run: Run) -> None:
            sys.addaudithook(counted)
            take_place(run)

        if not can_exchange:
            files.exchange = lambda one, other: False
        Run.take_place = watched  # type: ignore[method-assign]
        self.night("ease", search=False)

    def in_the_training(self) -> None:
        """Kill in the training: the old run answers after each kill; the same command, or `resume`,
        continues."""
        self.in_child(partial(self.train_at, self.directory / "alone", "gmf"))
        alone = Run.open(self.directory / "alone")
        for number, moment in enumerate(MOMENTS):
            before = self.yesterday()
            killing = Killing(moment, signal.SIGKILL)
            assert self.is_killed(partial(self.night, callback=killing), None)
            assert self.found(before) == "popularity"
            states = [run.state for run in list_runs(self.path.parent)]
            assert states == ["finished", "not finished"], states
            self.in_child(self.night if number % 2 else self.resumed)
            run = Run.open(self.path)
            assert (weights_of(run), numbers_of(run)) == (weights_of(alone), numbers_of(alone))
            assert [path.name for path in self.path.parent.iterdir()] == ["run"]
            say(moment=moment, same=True)

    def in_the_end(self, *, can_exchange: bool) -> None:
        """Kill at the end: a whole run answers after each kill, and the same command leaves only
        the new one."""
        for number in count(1):
            before = self.yesterday()
            killed = self.is_killed(partial(self.dying_at_call, number, can_exchange), None)
            was_there = self.path.exists()
            assert was_there or not can_exchange
            found = self.found(before) if was_there else None
            self.in_child(partial(self.night, "ease", search=False))
            assert Run.open(self.path).config.model == "ease"
            assert [path.name for path in self.path.parent.iterdir()] == ["run"]
            say(call=number, can_exchange=can_exchange, found=found)
            if not killed:
                break

    def yesterday(self) -> dict[str, bytes]:
        """Leave only a run that answers; return its files."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        shutil.copytree(self.directory / "yesterday", self.path.parent)
        return contents(self.path)

    def found(self, before: dict[str, bytes]) -> str:
        """The name of the model that answers; the run must be whole."""
        model = Run.open(self.path).config.model
        assert load(self.path).recommend([1], k=3)
        files = {name: text for name, text in contents(self.path).items() if "lock" not in name}
        assert model == "ease" or files == before
        return model


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        nights = Nights(Path(directory))
        nights.in_the_training()
        for can_exchange in (True, False):
            nights.in_the_end(can_exchange=can_exchange)


if __name__ == "__main__":
    main()

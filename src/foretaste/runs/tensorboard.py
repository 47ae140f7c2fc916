"""The numbers of a run's log for TensorBoard: loss, metrics and speed by epoch."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foretaste.errors import MissingExtraError, RunError
from foretaste.runs.log_lines import event_of

DIRECTORY = "tensorboard"
"""Within the run directory."""

_NOT_DRAWN = frozenset({"epoch", "step"})


def check_tensorboard() -> None:
    """MissingExtraError where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise MissingExtraError(
            'tensorboard is asked for and not installed; pip install "foretaste[report]"'
        )


class TensorBoard:
    """Numbers of the log as scalars of event files, which are made anew where it begins anew."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer: Any = None

    def begin(self, lines: list[str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self.directory.is_symlink() or (self.directory.exists() and not self.directory.is_dir()):
            raise RunError(
                f"{self.directory} is no directory of the run's own: nothing is written there; "
                "remove it"
            )
        shutil.rmtree(self.directory, ignore_errors=True)
        self._writer = SummaryWriter(self.directory)
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        event = event_of(line)
        for name, value in _scalars(event).items():
            self._writer.add_scalar(name, value, event["epoch"] or 0)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _scalars(event: dict[str, Any]) -> dict[str, float]:
    """The curves that an event adds a point to."""
    if event["event"] == "epoch":
        return {
            name: value
            for name, value in event.items()
            if isinstance(value, int | float) and name not in _NOT_DRAWN
        }
    if event["event"] == "evaluation":
        found = event["evaluation"]
        return {
            f"{found['split']}/{name}".replace("@", "_at_"): metric["value"]
            for name, metric in found["metrics"].items()
        }
    return {}

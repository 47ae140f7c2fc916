"""Checkpoints of several ranks: the first writes the rows of all, and each reads its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretaste.distributed.collectives import Ranks
from foretaste.errors import RunError
from foretaste.models.base import RecommenderModel
from foretaste.runs.files import STATE, WEIGHTS, RowsOf, SavedTensors
from foretaste.training.checkpoint import LOSSES, Checkpoints


class SharedCheckpoints(Checkpoints):
    """The checkpoints of a training by ranks: the same files as one process writes.

    All ranks call every method.
    """

    def __init__(self, ranks: Ranks, *settings: Any) -> None:
        super().__init__(*settings)
        self._ranks = ranks

    def write_state(self, tensors: Mapping[str, Tensor], position: Mapping[str, Any]) -> None:
        whole = gather_rows(self._ranks, tensors, self.step.rows_of)
        self._ranks.run_on_first(lambda: self.run.save_state(whole, position))

    def read_state(self) -> SavedTensors | None:
        if self._ranks.run_on_first(lambda: not (self.run.path / STATE).exists()):
            return None
        saved = read_alike(self._ranks, self.run.path / STATE, self._read_state)
        if not self._ranks.is_first:
            # Saved losses are sums over all ranks. The first rank keeps them, and the
            # others begin with zeros, so that the next sum is right.
            saved.tensors[LOSSES].zero_()
        return saved

    def _read_state(self) -> SavedTensors:
        if (saved := self.run.load_state(self.step.rows_of)) is None:
            raise RunError(f"{self.run.path / STATE} is not there for all ranks")
        return saved

    def begin_log(self, saved: SavedTensors) -> None:
        if self._ranks.is_first:
            super().begin_log(saved)

    def write_weights(self, model: RecommenderModel, epoch: int | None) -> None:
        whole = gather_rows(self._ranks, model.state_dict(), model.rows_of)
        self._ranks.run_on_first(lambda: self.run.save_weights(whole, epoch))

    def read_weights(self, model: RecommenderModel) -> dict[str, Tensor]:
        path = self.run.path / WEIGHTS
        return read_alike(self._ranks, path, lambda: self.run.open_weights(model.rows_of)).tensors


def gather_rows(ranks: Ranks, tensors: Mapping[str, Tensor], rows_of: RowsOf) -> dict[str, Tensor]:
    """Return tensors with the rows of all ranks, on the first; the others get some of the tensors.

    All ranks call it. ``rows_of`` says which rows of a tensor a rank has.
    """
    whole: dict[str, Tensor] = {}
    # Sorted, because sends and receives pair up by their order, which all ranks must share.
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        # Adam's count of steps is named after its table, and is a scalar that all ranks have.
        if rows_of(name) is None or not tensor.dim():
            whole[name] = tensor
        elif pieces := list(ranks.send_to_first(tensor)):
            whole[name] = torch.cat(pieces)
    return whole


def read_alike(ranks: Ranks, path: Path, read: Callable[[], SavedTensors]) -> SavedTensors:
    """Return what each rank reads of a file; RunError on all ranks if the file was replaced."""
    found: list[SavedTensors] = []

    def digest() -> str:
        found.append(read())
        return found[0].digest

    # Each rank opens the file by itself: another program may replace it in between.
    if len(set(ranks.run_on_each(digest))) > 1:
        raise RunError(f"{path} was replaced while it was read; try again")
    return found[0]

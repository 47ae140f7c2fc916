"""Steps of several ranks: gradients are summed, and each rank updates its own rows by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from foretaste.distributed.collectives import Ranks, union_bytes
from foretaste.models.base import NeuralModel
from foretaste.models.batches import Batch
from foretaste.ops.spans import span
from foretaste.training.optimizer import GroupOptimizer, LossScaler, parameters_of
from foretaste.training.step import Step


class SharedStep(Step):
    """A step of several ranks, each of which has a part of the batch.

    Gradients are summed while a rank updates the rows that it alone has, and while the next batch
    is made.
    """

    def __init__(self, *settings: Any, ranks: Ranks) -> None:
        super().__init__(*settings)
        self.ranks = ranks
        self._rest: Callable[[], None] | None = None
        if isinstance(self.scaler, LossScaler):
            self.scaler.seen = ranks.max_

    def finish(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            with span("step"):
                rest()

    def _update(self, batch: Batch, updating: Sequence[GroupOptimizer]) -> None:
        own = [one.optimizer for one in updating if one.is_sharded]
        shared = [one.optimizer for one in updating if not one.is_sharded]
        for parameter in parameters_of([*own, *shared]):
            # A rank without a gradient takes part in the sum too, or the other ranks would wait for
            # ever.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        # The sums run from this line.
        wait = self._sum_gradients(batch, shared)
        if self.scaler.looks_at_gradients:
            # Whether the step is taken depends on the gradients of all parameters, own ones too.
            wait()
            self.scaler.step([*shared, *own])
            self._add_to_average()
            return

        def rest() -> None:
            wait()
            self.scaler.step(shared)
            self._add_to_average()

        # Shared parameters wait for the sums: they are updated by `finish`, before the next forward
        # pass reads them. Parameters of this rank's users are updated now.
        self._rest = rest
        self.scaler.step(own)

    def _sum_gradients(
        self, batch: Batch, optimizers: Iterable[torch.optim.Optimizer]
    ) -> Callable[[], None]:
        """Begin to sum gradients over the ranks; returns a function that completes it.

        Tables with a row for each item are summed only in the rows of the batch's items, if these
        are surely fewer bytes.
        """
        model = self.model
        assert isinstance(model, NeuralModel)
        parameters = set(parameters_of(optimizers))
        tables: list[Tensor] = []
        others: list[Tensor] = []
        for name, parameter in model.named_parameters():
            if parameter in parameters and parameter.grad is not None:
                (tables if name in model.item_rows else others).append(parameter.grad)
        items = model.touched_items(batch) if tables else None
        num_samples, num_items = batch.num_samples, model.num_items
        # Rows alone are summed where these and the numbers of the items are fewer bytes than whole
        # tables.
        # Both counts are of the whole batch, so all ranks choose alike.
        num_bytes = sum(table.nbytes for table in tables)
        row_bytes = num_bytes // num_items
        if (
            items is None
            or row_bytes * num_samples + union_bytes(num_items, num_samples) > num_bytes
        ):
            # Ranks add in another order than one process. Adam makes such last digits grow: weights
            # drift apart, gradients of equal weights agree.
            return self.ranks.sum_later([*others, *tables]).wait
        index = self.ranks.union(items, num_items, num_samples)
        # Other rows have a gradient of zero on every rank, so they stay as they are.
        rows = [table.index_select(0, index) for table in tables]
        sums = self.ranks.sum_later([*others, *rows])

        def wait() -> None:
            sums.wait()
            for table, some in zip(tables, rows, strict=True):
                table.index_copy_(0, index, some)

        return wait

"""Steps of several ranks: gradients are summed, and each rank updates its own rows apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from foretaste.distributed.collectives import Ranks, union_bytes
from foretaste.errors import TrainingError
from foretaste.models.base import NeuralModel
from foretaste.models.baselines.ials import IALS, BothSides
from foretaste.models.batches import Batch
from foretaste.ops.least_squares import FixedVectors, gramian
from foretaste.ops.spans import span
from foretaste.training.optimizer import GroupOptimizer, LossScaler, parameters_of
from foretaste.training.step import Step, SweepStep


class SharedStep(Step):
    """A step by the parts of a batch that the ranks have.

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
        own = [one.optimizer for one in updating if one.is_of_part]
        shared = [one.optimizer for one in updating if not one.is_of_part]
        for parameter in parameters_of([*own, *shared]):
            if parameter.grad is None:  # this rank has no sample of it
                parameter.grad = torch.zeros_like(parameter)
        wait = self._sum_gradients(batch, shared)
        if self.scaler.looks_at_gradients:
            wait()
            self.scaler.step([*shared, *own])
            self._add_to_average()
            return

        def rest() -> None:
            wait()
            self.scaler.step(shared)
            self._add_to_average()

        self._rest = rest
        self.scaler.step(own)

    def _sum_gradients(
        self, batch: Batch, optimizers: Iterable[torch.optim.Optimizer]
    ) -> Callable[[], None]:
        """Begin to sum gradients over the ranks; returns a function that ends it.

        Of tables with a row for each item, only the rows of the batch's items are summed where
        those are surely fewer bytes.
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
        num_bytes = sum(table.nbytes for table in tables)
        row_bytes = num_bytes // num_items
        if (
            items is None
            or row_bytes * num_samples + union_bytes(num_items, num_samples) > num_bytes
        ):
            return self.ranks.sum_later([*others, *tables]).wait
        index = self.ranks.union(items, num_items, num_samples)
        rows = [table.index_select(0, index) for table in tables]
        sums = self.ranks.sum_later([*others, *rows])

        def wait() -> None:
            sums.wait()
            for table, some in zip(tables, rows, strict=True):
                table.index_copy_(0, index, some)

        return wait


class SharedSweepStep(SweepStep):
    """A sweep of iALS by ranks.

    Each has the vectors of its users and solves for them, and for consecutive items of about as
    many interactions. It has the vectors of all items, and of all users while it solves for its
    items.
    """

    def __init__(self, *settings: Any, ranks: Ranks) -> None:
        super().__init__(*settings)
        self.ranks = ranks

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        model = self.model
        assert isinstance(model, IALS)
        assert isinstance(batch, BothSides)
        with self.precision.products():
            penalty = self._by_all(lambda: model.solve_users(batch))
            users = self._vectors_of_all(model.user_factors)
            items_ID, loss_I = self._by_all(lambda: model.solve_items(users, batch))
            for place, piece_ID in self.ranks.gathered_in_pieces(items_ID):
                model.item_factors[place] = piece_ID
            return model.mean_loss(batch, loss_I, penalty)

    def _vectors_of_all(self, vector_ND: Tensor) -> FixedVectors:
        """The vectors of all ranks, each of which has consecutive ones, for rows to be solved."""
        # Summed in the order of the ranks, to the same bits on each.
        gramian_DD = torch.cat(self.ranks.gathered(gramian(vector_ND)[None])).sum(0)
        num_vectors = torch.tensor(len(vector_ND), device=vector_ND.device)
        self.ranks.sum_(num_vectors)
        pieces = self.ranks.gathered_in_pieces(vector_ND)
        return FixedVectors.of_pieces(gramian_DD, pieces, int(num_vectors), vector_ND.dtype)

    def _by_all(self, solve: Callable[[], Any]) -> Any:
        """What ``solve`` gives here; TrainingError on all ranks where it raises one on any."""
        found, message = None, None
        try:
            found = solve()
        except TrainingError as error:
            message = str(error)
        for said in self.ranks.on_each(lambda: message):
            if said is not None:
                raise TrainingError(said)
        return found

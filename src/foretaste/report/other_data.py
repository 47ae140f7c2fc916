"""A run measured on data it was not trained on: users and items are matched by id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretaste.data.dataset import Dataset, HeldOut, Split
from foretaste.data.histories import Histories
from foretaste.errors import DatasetError
from foretaste.evaluation.result import Matching
from foretaste.runs.run import Run


@dataclass(frozen=True, eq=False)
class Matched:
    """Held-out users of a dataset in the numbers of a run."""

    heldout: HeldOut
    user_index: NDArray[np.int32]
    """The dataset's numbers of the same users."""
    matching: Matching


@dataclass(frozen=True, eq=False)
class _Places:
    """Rows that the held-out users and all items of a dataset have in a run; -1 for none.

    Shape suffixes: U held-out users, I items of the dataset.
    """

    run: Run
    user_row_U: NDArray[np.int64]
    item_row_I: NDArray[np.int64]

    @classmethod
    def of(cls, run: Run, dataset: Dataset, heldout: HeldOut) -> _Places:
        user_ids = dataset.users.ids(heldout.user_index)
        return cls(run, run.users.lookup(user_ids), run.items.lookup(dataset.items.ids()))

    @property
    def is_trained(self) -> NDArray[np.bool_]:
        """Which users the run was trained on."""
        trained: NDArray[np.bool_] = self.user_row_U >= 0
        return trained & (self.user_row_U < self.run.num_train_users)

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Which items the run was trained on."""
        known: NDArray[np.bool_] = self.item_row_I >= 0
        return known & (self.item_row_I < self.run.num_items)

    def user_index(self, heldout: HeldOut) -> NDArray[np.int64]:
        """A number for each user: the run's or, of those it has not, one beyond its own."""
        beyond = len(self.run.users) + heldout.user_index
        return np.where(self.user_row_U < 0, beyond, self.user_row_U)

    def renumbered(self, pairs: Histories) -> Histories:
        """Pairs of the dataset with the run's items; those it has not lie beyond its own."""
        num_own, num_here = len(self.run.items), len(self.item_row_I)
        number_I = np.where(self.item_row_I < 0, num_own + np.arange(num_here), self.item_row_I)
        return Histories.from_pairs(
            pairs.row_index(),
            number_I[pairs.item_index],
            num_users=len(pairs),
            num_items=num_own + num_here,
        )

    def trained_pairs(self) -> Histories:
        """Those of these users that the run was trained on, with its items."""
        nobody = len(self.run.users)
        pairs = self.run.trained_pairs.padded(nobody + 1)
        return pairs.rows(np.where(self.user_row_U < 0, nobody, self.user_row_U))

    def has_trained_on(self, pairs: Histories) -> NDArray[np.bool_]:
        """Which pairs of the dataset the run was trained on."""
        trained = self.trained_pairs()
        item_I = np.full(len(self.run.items), -1)
        is_there_I = self.item_row_I >= 0
        item_I[self.item_row_I[is_there_I]] = np.flatnonzero(is_there_I)
        items = item_I[trained.item_index]
        here = Histories.from_pairs(
            trained.row_index()[items >= 0],
            items[items >= 0],
            num_users=len(trained),
            num_items=len(self.item_row_I),
        )
        found: NDArray[np.bool_] = here.find(pairs) >= 0
        return found


def match(runs: Sequence[Run], dataset: Dataset, split: Split) -> Iterator[Matched]:
    """The held-out users of ``dataset`` as each of ``runs`` is to be measured on them, in turn.

    The model may know of a user what the dataset lets it know and what it was trained on. Held-out
    pairs that any of the runs was trained on are neither targets nor candidates. Raises
    DatasetError where nothing is left, or no item is known.
    """
    heldout = dataset.heldout(split)
    places = [_Places.of(run, dataset, heldout) for run in runs]
    trained_on = np.logical_or.reduce([each.has_trained_on(heldout.target) for each in places])
    for each in places:
        _check(each, dataset, trained_on)
        yield _matched(each, dataset, heldout, trained_on)


def _matched(
    places: _Places, dataset: Dataset, heldout: HeldOut, trained_on: NDArray[np.bool_]
) -> Matched:
    run = places.run
    own = places.trained_pairs()
    known = heldout.known.union(heldout.target.where(trained_on))
    candidates = heldout.candidates
    if candidates is not None:
        candidates = places.renumbered(candidates).within(run.num_items)
    matched = HeldOut(
        split=heldout.split,
        user_index=places.user_index(heldout).astype(np.int32),
        history=places.renumbered(heldout.history).union(own).within(run.num_items),
        known=places.renumbered(known).union(own).within(run.num_items),
        target=places.renumbered(heldout.target.where(~trained_on)),
        candidates=candidates,
        dataset_digest=heldout.dataset_digest,
    )
    judged = np.flatnonzero(matched.target.lengths())
    is_trained = places.is_trained[judged]
    matching = Matching(
        run=str(run.path),
        is_own_dataset=run.config.dataset.digest == dataset.manifest.digest,
        num_users_trained=int(is_trained.sum()),
        num_users_folded_in=int((~is_trained).sum()),
        num_users_without_history=int((matched.history.lengths()[judged] == 0).sum()),
        num_items=run.num_items,
        num_items_shared=int(places.is_known[: dataset.manifest.num_items].sum()),
        num_dataset_items=dataset.manifest.num_items,
        num_pairs_left_out=int(trained_on.sum()),
        num_earlier_runs=sum(isinstance(start, dict) for start in run.config.start.values()),
    )
    return Matched(matched, heldout.user_index, matching)


def _check(places: _Places, dataset: Dataset, trained_on: NDArray[np.bool_]) -> None:
    if not places.is_known.any():
        raise DatasetError(
            f"none of the {len(places.item_row_I):,} items of {dataset.path} is known to "
            f"{places.run.path}: there is nothing to measure; are the ids the same?"
        )
    if len(trained_on) and trained_on.all():
        raise DatasetError(
            f"all {len(trained_on):,} held-out pairs of {dataset.path} were trained on by the runs "
            "to be measured: there is nothing left to measure; name data with later interactions"
        )

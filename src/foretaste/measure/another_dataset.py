"""Evaluation of a run on another dataset than its own: users and items are matched by id.

Shape suffixes: U held-out users, I items of the dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretaste.data.dataset import Dataset, HeldOut, Split
from foretaste.data.histories import Histories
from foretaste.data.manifest import UNSEEN
from foretaste.errors import DatasetError, NothingLeftError
from foretaste.evaluation.result import Matching
from foretaste.runs.run import Run


@dataclass(frozen=True, eq=False)
class MatchedUsers:
    """Held-out users of a dataset, with the user and item indexes of a run."""

    heldout: HeldOut
    user_index: NDArray[np.int32]
    """The dataset's indexes of the same users."""
    matching: Matching


@dataclass(frozen=True, eq=False)
class _RowsInRun:
    """The rows in a run of a dataset's held-out users and of all its items; -1 for none."""

    run: Run
    user_row_U: NDArray[np.int64]
    item_row_I: NDArray[np.int64]

    @classmethod
    def of(cls, run: Run, dataset: Dataset, heldout: HeldOut) -> _RowsInRun:
        user_ids = dataset.users.ids(heldout.user_index)
        return cls(run, run.users.lookup(user_ids), run.items.lookup(dataset.items.ids()))

    def renumber(self, pairs: Histories) -> Histories:
        """Return the dataset's pairs with the run's item indexes, unknown items above these."""
        num_own, num_here = len(self.run.items), len(self.item_row_I)
        number_I = np.where(self.item_row_I < 0, num_own + np.arange(num_here), self.item_row_I)
        return Histories.from_pairs(
            pairs.row_index(),
            number_I[pairs.item_index],
            num_users=len(pairs),
            num_items=num_own + num_here,
            position=pairs.position,
        )

    def trained_pairs(self) -> Histories:
        """Return the training pairs of these users in the run, with the run's item indexes."""
        nobody = len(self.run.users)
        pairs = self.run.trained_pairs.padded(nobody + 1)
        return pairs.rows(np.where(self.user_row_U < 0, nobody, self.user_row_U))

    def has_trained_on(self, pairs: Histories) -> NDArray[np.bool_]:
        """Return a mask of the dataset's pairs: True for those in the run's training."""
        trained, num_items = self.trained_pairs(), len(self.run.items)
        item_row = self.item_row_I[pairs.item_index]
        key = pairs.row_index().astype(np.int64) * num_items + item_row
        trained_key = trained.row_index().astype(np.int64) * num_items + trained.item_index
        return (item_row >= 0) & np.isin(key, trained_key)

    def match_users(
        self, dataset: Dataset, heldout: HeldOut, trained_on: NDArray[np.bool_]
    ) -> MatchedUsers:
        """Return the held-out users with the run's indexes, without the pairs in training."""
        run, user_row_U = self.run, self.user_row_U
        # All runs of a dataset share one catalogue, whether they list all of it or not.
        catalogue = run.config.dataset.num_listed_items
        is_known_I = (self.item_row_I >= 0) & (self.item_row_I < run.num_items)
        if not is_known_I.any():
            raise DatasetError(
                f"none of the {len(is_known_I):,} items of {dataset.path} is known to {run.path}: "
                "there is nothing to measure; compare the ids of both"
            )
        if len(trained_on) and trained_on.all():
            raise NothingLeftError(
                f"all {len(trained_on):,} held-out pairs of {dataset.path} were trained on by the "
                "runs to be measured: there is nothing left to measure; name data with later "
                "interactions"
            )
        own = self.trained_pairs()
        known = heldout.known.union(heldout.target.where(trained_on))
        candidates = heldout.candidates
        if candidates is not None:
            candidates = self.renumber(candidates).within(catalogue)
        # Users unknown to the run get indexes above its own.
        user_index_U = np.where(user_row_U < 0, len(run.users) + heldout.user_index, user_row_U)
        history = self.renumber(heldout.history)
        known = self.renumber(known)
        if heldout.protocol != UNSEEN:
            history, known = own.followed_by(history), known.union(own)
        matched = replace(
            heldout,
            num_train_users=run.num_train_users,
            num_train_items=run.config.dataset.num_items,
            user_index=user_index_U.astype(np.int32),
            history=history.within(catalogue),
            known=known.within(catalogue),
            target=self.renumber(heldout.target.where(~trained_on)),
            candidates=candidates,
            num_trained=own.lengths(),
        )
        counted = np.flatnonzero(matched.target.lengths())
        is_trained = (user_row_U[counted] >= 0) & (user_row_U[counted] < run.num_train_users)
        matching = Matching(
            run=str(run.path),
            is_own_dataset=run.config.dataset.digest == dataset.manifest.digest,
            num_users_trained=int(is_trained.sum()),
            num_users_folded_in=int((~is_trained).sum()),
            num_users_without_history=int((matched.history.lengths()[counted] == 0).sum()),
            num_items=run.num_items,
            num_items_shared=int(is_known_I[: dataset.manifest.num_listed_items].sum()),
            num_dataset_items=dataset.manifest.num_listed_items,
            num_pairs_left_out=int(trained_on.sum()),
            num_earlier_runs=sum(isinstance(start, dict) for start in run.config.start.values()),
        )
        return MatchedUsers(matched, heldout.user_index, matching)


def match(runs: Sequence[Run], dataset: Dataset, split: Split) -> Iterator[MatchedUsers]:
    """Yield the held-out users of ``dataset`` with the indexes of each of ``runs``, in turn.

    A user's history is the run's, then the dataset's. Under protocol unseen it is the dataset's
    alone, the same for all runs. Held-out pairs in
    the training of any run are neither targets nor candidates. Raises DatasetError if no pair is
    left, or no item is known.
    """
    heldout = dataset.heldout(split, order=True)
    in_runs = [_RowsInRun.of(run, dataset, heldout) for run in runs]
    trained_on = np.logical_or.reduce([rows.has_trained_on(heldout.target) for rows in in_runs])
    for rows in in_runs:
        yield rows.match_users(dataset, heldout, trained_on)

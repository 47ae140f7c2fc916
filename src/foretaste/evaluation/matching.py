"""What became of users, items and held-out pairs where a run is measured on other data."""

from __future__ import annotations

from dataclasses import dataclass

from foretaste._util.formatting import counted


@dataclass(frozen=True, kw_only=True)
class Matching:
    """How a run was matched by id with a dataset; users are those that were counted."""

    run: str
    """Directory of the run."""

    is_own_dataset: bool
    """Whether the run was trained on the dataset; another that it is compared with was not."""

    num_users_trained: int
    """Users that the run was trained on."""

    num_users_folded_in: int
    """Users that it was not trained on, answered from their history in the dataset."""

    num_users_without_history: int
    """Users of whom no item is known to the run, answered in popularity order."""

    num_items: int
    """Items of the run's catalogue: the candidates."""

    num_items_shared: int
    """Items of the dataset's catalogue that the run was trained on."""

    num_dataset_items: int
    """Items of the dataset's catalogue."""

    num_pairs_left_out: int
    """Held-out pairs that the run, or another it is compared with, was trained on."""

    num_earlier_runs: int
    """Runs whose weights it began with; what those were trained on is not known here."""

    def lines(self) -> list[str]:
        """Lines to print beside the numbers."""
        lines = [
            f"{self.run}: {'trained' if self.is_own_dataset else 'not trained'} on this dataset, "
            f"matched by id; {counted(self.num_users_trained, 'user')} trained on, "
            f"{self.num_users_folded_in:,} folded in from their history; "
            f"{self.num_users_without_history:,} of them all have none: popularity order",
            f"{self.run}: candidates are of its own catalogue, {counted(self.num_items, 'item')}, "
            f"which has {self.num_items_shared:,} of the dataset's {self.num_dataset_items:,}",
            f"{counted(self.num_pairs_left_out, 'held-out pair')} that were trained on are left "
            "out, as targets and as candidates",
        ]
        if self.num_earlier_runs:
            lines.append(
                f"{self.run}: began with the weights of {counted(self.num_earlier_runs, 'run')}; "
                "what was learned there may include held-out pairs"
            )
        return lines

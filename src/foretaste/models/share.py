"""Shares: the part of a model and of its training data that one of several ranks has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from foretaste.models.config import Sharing
from foretaste.ops.ranks import ALONE, Ranks


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of a rank: the users whose interactions and table rows it has."""

    ranks: Ranks
    num_users: int
    """Users of the training part, on all ranks."""
    num_items: int
    """Items of the catalogue, on all ranks."""
    users: range
    shards_users: bool = False
    """True where every user's table rows are on one rank alone."""

    @classmethod
    def whole(cls, num_users: int, num_items: int, ranks: Ranks = ALONE) -> Share:
        """Everything: that of a single process, or of each where only the batches are shared."""
        return cls(
            ranks=ranks,
            num_users=num_users,
            num_items=num_items,
            users=range(num_users),
        )

    @classmethod
    def of(
        cls,
        parallel: Sharing | None,
        num_users: int,
        num_items: int,
        ranks: Ranks,
        user_bounds: Callable[[int], Sequence[int]],
    ) -> Share:
        """The share of one of ``ranks`` where training is shared out ``parallel``.

        ``user_bounds`` gives the users at which so many parts of the data begin, and the end.
        """
        if parallel == "users" and ranks.size > 1:
            return cls.of_users(num_users, num_items, ranks, user_bounds(ranks.size))
        return cls.whole(num_users, num_items, ranks)

    @classmethod
    def of_users(cls, num_users: int, num_items: int, ranks: Ranks, bounds: Sequence[int]) -> Share:
        """The users between two of these ``bounds``, and all items."""
        users = range(bounds[ranks.rank], bounds[ranks.rank + 1])
        return replace(
            cls.whole(num_users, num_items, ranks), users=users, shards_users=ranks.size > 1
        )

    def user_rows(self, table_UD: Tensor, user_index_B: Tensor) -> Tensor:
        """Rows [B, D] of a table of its users; zeros for users whose rows are on other ranks."""
        if not self.shards_users:
            return table_UD.index_select(0, user_index_B)
        is_here_B = (user_index_B >= self.users.start) & (user_index_B < self.users.stop)
        row_BD = table_UD.new_zeros(len(user_index_B), table_UD.shape[1])
        row_BD[is_here_B] = table_UD[user_index_B[is_here_B] - self.users.start]
        return row_BD

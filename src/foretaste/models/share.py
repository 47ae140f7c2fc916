"""Shares: the part of a model and of its training data that one of several ranks has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from foretaste.models.config import Sharing
from foretaste.ops.ranks import ALONE, Ranks


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of a rank: the users and items whose interactions and table rows it has."""

    ranks: Ranks
    parallel: Sharing
    num_users: int
    """Users of the training part, on all ranks."""
    num_items: int
    """Items of the catalogue, on all ranks."""
    users: range
    items: range

    @classmethod
    def whole(cls, num_users: int, num_items: int, ranks: Ranks = ALONE) -> Share:
        """Everything: that of a single process, or of each where only the batches are shared."""
        return cls(
            ranks=ranks,
            parallel="data",
            num_users=num_users,
            num_items=num_items,
            users=range(num_users),
            items=range(num_items),
        )

    @classmethod
    def of(
        cls,
        parallel: str,
        num_users: int,
        num_items: int,
        ranks: Ranks,
        user_bounds: Callable[[int], Sequence[int]],
    ) -> Share:
        """The share of one of ``ranks`` where training is shared out ``parallel``.

        ``user_bounds`` gives the users at which so many parts of the data begin, and the end.
        """
        sizes = num_users, num_items
        if ranks.size == 1:
            return cls.whole(*sizes)
        if parallel == "users":
            return cls.of_users(*sizes, ranks, user_bounds(ranks.size))
        return cls.of_items(*sizes, ranks) if parallel == "items" else cls.whole(*sizes, ranks)

    @classmethod
    def of_users(cls, num_users: int, num_items: int, ranks: Ranks, bounds: Sequence[int]) -> Share:
        """The users between two of these ``bounds``, and all items."""
        users = range(bounds[ranks.rank], bounds[ranks.rank + 1])
        return replace(cls.whole(num_users, num_items, ranks), parallel="users", users=users)

    @classmethod
    def of_items(cls, num_users: int, num_items: int, ranks: Ranks) -> Share:
        """All users, and an equal part of the items."""
        items = ranks.part_of(num_items)
        return replace(cls.whole(num_users, num_items, ranks), parallel="items", items=items)

    def user_rows(self, table_UD: Tensor, user_index_B: Tensor) -> Tensor:
        """Rows [B, D] of a table of its users; zeros for users whose rows are on other ranks."""
        if not self.shards_users:
            return table_UD.index_select(0, user_index_B)
        is_here_B = (user_index_B >= self.users.start) & (user_index_B < self.users.stop)
        row_BD = table_UD.new_zeros(len(user_index_B), table_UD.shape[1])
        row_BD[is_here_B] = table_UD[user_index_B[is_here_B] - self.users.start]
        return row_BD

    @property
    def most_items(self) -> int:
        """Items of the rank that has the most."""
        return -(-self.num_items // self.ranks.size) if self.shards_items else self.num_items

    @property
    def shards_users(self) -> bool:
        """True where every user's table rows are on one rank alone."""
        return self.parallel == "users" and self.ranks.size > 1

    @property
    def shards_items(self) -> bool:
        """True where every item's table rows are on one rank alone."""
        return self.parallel == "items" and self.ranks.size > 1

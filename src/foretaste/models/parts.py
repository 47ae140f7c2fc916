"""The parts of a model in training, and what they learn of each other's users.

Several processes may train one model. Each has the rows of consecutive users, or sees some users of
every batch. A model asks its `Shards` for everything that it needs from all parts.
"""

from __future__ import annotations

from torch import Tensor


class Shards:
    """A single part with all users, which needs no other part.

    If there are several parts, each calls the same methods in the same order.
    """

    def part_of(self, size: int) -> range:
        """Return this part's consecutive share of ``size`` things, about as large as the others."""
        return range(size)

    def total(self, tensor: Tensor) -> Tensor:
        """Return a new tensor: the sum over the parts, with the same bits in each."""
        return tensor.clone()

    def largest(self, tensor: Tensor) -> Tensor:
        """Return a new tensor: the maximum over the parts."""
        return tensor.clone()

    def prefix_sum(self, tensor: Tensor) -> Tensor:
        """Return a new tensor: the sum over the parts of the users before this one's."""
        return tensor.new_zeros(tensor.shape)

    def union(self, index_U: Tensor, size: int, at_most: int) -> Tensor:
        """Return the distinct numbers in [0, size) of all parts, ascending, int64.

        ``index_U`` are this part's, distinct and ascending. All parts have at most ``at_most``
        distinct numbers together.
        """
        return index_U.long()


SINGLE = Shards()
"""The one part of a model that a single process trains."""

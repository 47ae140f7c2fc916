"""Features of items: what is known of them beside interactions, such as category and brand."""

from __future__ import annotations

from dataclasses import dataclass

from foretaste.data.histories import Histories


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The feature values of a dataset's items.

    Every value has at least two listed items, and at most half of them.
    """

    histories: Histories
    """The items of each value: one row per value, over the listed items, without positions."""

    names: tuple[tuple[str, str], ...]
    """The column and the value of each row, such as ``("category", "wine")``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that have values, in the order in which they were asked for."""
        return tuple(dict.fromkeys(column for column, _ in self.names))

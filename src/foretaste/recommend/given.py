"""Histories as callers give them: what training saw of them, and what to say of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np

from foretaste.data.histories import Histories
from foretaste.recommend.ids import Id, named

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable

NOTHING_KNOWN = "popularity order: nothing in the history was seen in training"


def known_histories(
    items: IdTable, num_items: int, given: Sequence[Sequence[Id]]
) -> tuple[Histories, list[list[str]]]:
    """One row per given history, of its items in the catalogue (the first ``num_items``).

    And for each what to say: nothing where every item was in the catalogue.
    """
    lengths = np.array([len(ids) for ids in given], dtype=np.int64)
    row_index = np.repeat(np.arange(len(given)), lengths)
    item_index = items.lookup([*chain.from_iterable(given)])
    is_known = (item_index >= 0) & (item_index < num_items)
    known = Histories.from_pairs(
        row_index[is_known], item_index[is_known], num_users=len(given), num_items=num_items
    )
    ignored = np.split(~is_known, np.cumsum(lengths)[:-1])
    reasons = [
        _reason(len(ids), list(compress(ids, flags)))
        for ids, flags in zip(given, ignored[: len(given)], strict=True)
    ]
    return known, reasons


def _reason(num_items: int, ignored: Sequence[Id]) -> list[str]:
    if num_items == 0:
        return ["popularity order: the history is empty"]
    if not ignored:
        return []
    if len(ignored) == num_items:
        return [f"{NOTHING_KNOWN}: {named(ignored)}"]
    items = "1 item" if len(ignored) == 1 else f"{len(ignored)} items"
    return [f"{items} of the history ignored, never seen in training: {named(ignored)}"]

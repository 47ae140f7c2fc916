"""Histories as callers give them: what training saw of them, and what to say of the rest."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from foretaste._util.formatting import counted
from foretaste.data.histories import Histories
from foretaste.errors import SettingError
from foretaste.recommend.answers import COLUMNS, Kind
from foretaste.recommend.ids import Id, as_ids, examples, named

if TYPE_CHECKING:
    from foretaste.data.ids import IdTable

NOTHING_KNOWN = "popularity order: nothing in the history was seen in training"
UNKNOWN_USER = "popularity order: the run does not know this user"


@dataclass(frozen=True, eq=False)
class Given:
    """Histories, and what those are called whose they are."""

    kind: Kind
    """``user`` where they have names, ``history`` where they have none."""
    names: list[Id | None]
    histories: list[list[Id]]

    @classmethod
    def of(cls, given: Mapping[Id, Iterable[Id]] | Sequence[Iterable[Id]]) -> Given:
        """Histories by name, or without names; SettingError where they are a table, names are no
        ids of one kind, or a history is no list."""
        if not isinstance(given, Iterable) or isinstance(given, str) or hasattr(given, "columns"):
            raise SettingError(
                'histories must be lists of item ids, [[1, 5], [7]] or {"anna": [1, 5]}, got one '
                f"of type {type(given).__name__}; foretaste.data.read_histories makes them of "
                "frames and files"
            )
        if not isinstance(given, Mapping):
            histories = [as_ids("each history", ids) for ids in given]
            return cls("history", [None] * len(histories), histories)
        if not any(all(isinstance(name, kind) for name in given) for kind in (str, Integral)):
            raise SettingError(
                f"histories must be named all by integers or all by text, got {named([*given])}"
            )
        return cls("user", [*given], [as_ids("each history", ids) for ids in given.values()])

    def asked(self) -> pa.Table:
        """One column: the names, or numbers from 0 where there are none."""
        numbered = [place if name is None else name for place, name in enumerate(self.names)]
        return pa.table({COLUMNS[self.kind]: pa.array(numbered)})


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
        _reason(items, num_items, len(ids), list(compress(ids, flags)))
        for ids, flags in zip(given, ignored[: len(given)], strict=True)
    ]
    return known, reasons


def _reason(items: IdTable, num_items: int, num_given: int, ignored: Sequence[Id]) -> list[str]:
    if num_given == 0:
        return ["popularity order: the history is empty"]
    if not ignored:
        return []
    if len(ignored) == num_given:
        hint = _without_commas(items, num_items, ignored) or examples(items)
        return [f"{NOTHING_KNOWN}: {named(ignored)}; {hint}"]
    items_ignored = counted(len(ignored), "item")
    return [f"{items_ignored} of the history ignored, never seen in training: {named(ignored)}"]


def _without_commas(items: IdTable, num_items: int, ignored: Sequence[Id]) -> str | None:
    """What was meant where ids with commas between them were taken for one; else None."""
    parts = [part.strip() for given in ignored for part in str(given).split(",")]
    item_index = items.lookup(parts)
    if len(parts) == len(ignored) or not ((item_index >= 0) & (item_index < num_items)).all():
        return None
    return f"did you mean --history {shlex.join(parts)}?"

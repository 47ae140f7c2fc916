"""The two people the demonstration recommends to, and their lists beside what they have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from foretaste.recommend import Answer
    from foretaste.recommend.ids import Id
    from foretaste.runs import Run

_SHORTEST_HISTORY = 8
_NEW_HISTORY = 4


def some_user(run: Run) -> tuple[Id, list[Id]]:
    """The user with the shortest history that tells of a taste, and its items."""
    histories = run.histories
    lengths = histories.lengths()
    telling = np.flatnonzero(lengths >= min(_SHORTEST_HISTORY, lengths.max()))
    user = telling[[lengths[telling].argmin()]]
    (user_id,) = run.users.ids(user)
    return user_id, run.items.ids(histories.rows(user).item_index)


def some_fan(run: Run) -> list[Id]:
    """What most users have of the genre with most items: the history of someone new."""
    genre_I = np.array(run.items.column("genre"))
    genres, num_items = np.unique(genre_I, return_counts=True)
    of_genre = np.flatnonzero(genre_I == genres[num_items.argmax()])
    num_users_I = np.bincount(run.histories.item_index, minlength=len(genre_I))
    best_first = of_genre[np.argsort(-num_users_I[of_genre], kind="stable")]
    return run.items.ids(best_first[:_NEW_HISTORY])


def side_by_side(run: Run, who: str, history: Sequence[Id], answer: Answer) -> Table:
    """What somebody has, and what is recommended, title by title."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, caption=answer.reason, caption_justify="left"
    )
    table.add_column(f"{who} has")
    table.add_column("is recommended", style="bold")
    has = run.items.titles(run.items.lookup(history)) or []
    recommended = [item.title for item in answer.items]
    for left, right in zip_longest(has, recommended, fillvalue=""):
        table.add_row(Text(left or ""), Text(right or ""))
    return table

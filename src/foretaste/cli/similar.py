"""``foretaste similar``: the items most similar to an item."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from foretaste.cli.answers_output import (
    AnswersFormat,
    check_format,
    open_recommender,
    print_answers,
)
from foretaste.cli.arguments import FLAG


def similar(
    run: Path,
    /,
    *,
    item: list[str],
    k: int | None = None,
    format: AnswersFormat = "table",
    spreadsheet_safe: Annotated[bool, FLAG] = False,
    device: str = "auto",
) -> None:
    """List the items most similar to an item.

    Args:
        run: Directory of the run.
        item: Ids of items: --item 1 5.
        k: Items per list; 10 unless given.
        format: How to print.
        spreadsheet_safe: Put an apostrophe before text in CSV that a spreadsheet would compute.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
    """
    check_format(format, spreadsheet_safe)
    arguments: dict[str, Any] = {} if k is None else {"k": k}
    recommender = open_recommender(run, device)
    print_answers(
        recommender.similar_items(item, **arguments), format, spreadsheet_safe=spreadsheet_safe
    )

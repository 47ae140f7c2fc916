"""``foretaste similar``: the items most similar to an item, or to each of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from foretaste.cli.answers_output import (
    AnswersFormat,
    check_format,
    open_recommender,
    print_answers,
    say_written,
)
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting
from foretaste.errors import SettingError


def similar(
    run: Path,
    /,
    *,
    item: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    all: Annotated[bool, FLAG] = False,
    k: int | None = None,
    output: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    format: AnswersFormat | None = None,
    spreadsheet_safe: Annotated[bool, FLAG] = False,
    device: str = "auto",
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """List the items most similar to an item, or to each of the catalogue.

    Args:
        run: Directory of the run.
        item: Ids of items: --item 1 5.
        all: Every item of the catalogue, written to --output.
        k: Items per list; 10 unless given.
        output: File to write instead of printing: .parquet, .csv or .jsonl.
        overwrite: Replace the output if it is there already.
        format: How to print; as a table unless given.
        spreadsheet_safe: Put an apostrophe before text in CSV that a spreadsheet would compute.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        quiet: Print the lists and nothing else: no progress and no notes.
    """
    if bool(item) == all:
        found = "both" if all else "neither"
        raise SettingError(f"say which items: --item ID, or --all for every one; got {found}")
    check_format(format, spreadsheet_safe, output, overwrite=overwrite, all=all)
    recommender = open_recommender(run, device, quiet=quiet)
    arguments: dict[str, Any] = {} if k is None else {"k": k}
    if output is None:
        answers = recommender.similar_items(item, **arguments)
        print_answers(answers, format or "table", spreadsheet_safe=spreadsheet_safe, quiet=quiet)
        return
    with counting("Looking for similar items", quiet=quiet) as tell:
        export = recommender.similar_all(
            output,
            item_ids=None if all else item,
            overwrite=overwrite,
            spreadsheet_safe=spreadsheet_safe,
            progress=tell,
            **arguments,
        )
    if not quiet:
        say_written(export, "item")

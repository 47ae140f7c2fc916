"""``foretaste prepare``: files of interactions become a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, say_next, stdout_console, steps
from foretaste.data.config import PrepareConfig


def prepare(
    sources: list[str],
    /,
    *,
    output: Path | None = None,
    items: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    config: Annotated[PrepareConfig | None, Parameter(name="*", group="Preparation")] = None,
) -> None:
    """Turn files of interactions into a dataset.

    Args:
        sources: CSV, TSV or Parquet files, or patterns of them in quotes ('folder/*.parquet').
            Columns of users, items, ratings and times are found by their common names.
        output: Directory of the dataset; datasets/NAME-DIGEST unless given, which is kept if it
            is there already.
        items: A file that describes items: their ids, and columns such as a title.
        overwrite: Replace a dataset that is there already.
    """
    from foretaste.data import prepare as prepare_dataset

    console = stdout_console()
    with steps("Preparing") as tell:
        dataset = prepare_dataset(
            sources, output, config, items=items, overwrite=overwrite, progress=tell
        )
    say(console, f"Dataset: {dataset.path}")
    summary = dataset.manifest.summary()
    width = max(len(label) for label, _ in summary)
    for label, value in summary:
        say(console, f"  {label:{width}}  {value}")
    say_next(
        console,
        ("foretaste", "train", "vae", dataset.path),
        ("foretaste", "train", "neumf", dataset.path),
    )

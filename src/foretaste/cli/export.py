"""``foretaste export``: a run as a program that needs no foretaste."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from foretaste._util.formatting import memory
from foretaste._util.terminal import print_data
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, note_if_unfinished, say, stdout_console


def export(
    run: Path,
    /,
    *,
    output: Path,
    format: Literal["onnx", "torch"] = "onnx",
    k: int = 10,
    overwrite: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Write a run as a program: histories in, lists out.

    Args:
        run: Directory of the run.
        output: Directory of the program, new or empty.
        format: onnx for ONNX Runtime, torch for torch.export.load.
        k: Items in each list.
        overwrite: Replace the export in that directory.
        quiet: Print the program and nothing else.
    """
    from foretaste.export import export_run
    from foretaste.runs import Run

    opened = Run.open(run)
    with counting("Comparing lists", quiet=quiet) as progress:
        made = export_run(
            opened,
            output,
            format=format,
            k=k,
            overwrite=overwrite,
            progress=progress,
        )
    note_if_unfinished(opened, quiet=quiet)
    console = stdout_console()
    if quiet:
        print_data(str(made.program))
        return
    size = memory(sum(file.stat().st_size for file in made.path.iterdir()))
    say(console, f"{opened.config.model} in {made.program}, {size}")
    say(console, f"  {', '.join(made.inputs)} -> {made.k} items for each user, and their scores")
    if made.reads_order:
        say(console, "  each history oldest first")
    say(console, f"  {made.parity}")

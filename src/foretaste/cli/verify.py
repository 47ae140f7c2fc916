"""``foretaste verify``: is everything in a dataset or run as it was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, stdout_console


def verify(paths: list[Path], /, *, quiet: Annotated[bool, FLAG] = False) -> None:
    """Check every file of a dataset or run.

    Args:
        paths: Directories of datasets and runs.
        quiet: Print nothing of what is as it was written.
    """
    from foretaste.runs import verify as verify_directory

    console = stdout_console()
    verified = []
    for path in paths:
        found = verify_directory(path)
        verified.append(found)
        shown = [check for check in found.checks if not (quiet and check.is_ok)]
        if shown or not quiet:
            say(console, f"{path}: {found.holds}")
        width = max((len(check.subject) for check in shown), default=0)
        for check in shown:
            mark, style = ("ok   ", None) if check.is_ok else ("WRONG", "red")
            say(console, f"  {check.subject:{width}}  {mark}  {check.found}", style)
    for found in verified:
        found.raise_if_wrong()

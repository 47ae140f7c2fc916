"""``foretaste verify``: is everything in a dataset or run as it was written?"""

from __future__ import annotations

from pathlib import Path

from foretaste.cli.console import say, stdout_console


def verify(paths: list[Path], /) -> None:
    """Check every file of a dataset or run.

    Args:
        paths: Directories of datasets and runs.
    """
    from foretaste.runs import verify as verify_directory

    console = stdout_console()
    verified = []
    for path in paths:
        found = verify_directory(path)
        verified.append(found)
        say(console, f"{path}: {found.holds}")
        width = max(len(check.subject) for check in found.checks)
        for check in found.checks:
            mark, style = ("ok   ", None) if check.is_ok else ("WRONG", "red")
            say(console, f"  {check.subject:{width}}  {mark}  {check.found}", style)
    for found in verified:
        found.raise_if_wrong()

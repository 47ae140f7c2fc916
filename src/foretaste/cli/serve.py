"""``foretaste serve``: the HTTP service of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, stdout_console
from foretaste.serve.config import ServeConfig


def serve(
    *run: Path,
    config: Annotated[ServeConfig | None, Parameter(name="*")] = None,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Answer requests from runs.

    Args:
        run: Directories of runs; requests name them by their last part, and get the first
            unless they do.
        quiet: Print no address; the log on stderr stays.
    """
    from foretaste.serve import serve as serve_runs

    console = stdout_console(quiet=quiet)

    def announce(url: str) -> None:
        say(console, f"Serving {', '.join(map(str, run))} at {url}; Ctrl-C ends it")
        sys.stdout.flush()

    serve_runs(run, config, announce=announce)

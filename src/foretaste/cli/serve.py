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
    """Serve runs over HTTP.

    Args:
        run: Directories of runs. Requests name a run by the last part of its path; the first run is
            the default.
        quiet: Do not print the address; the log on stderr stays.
    """
    from foretaste.serve import serve as serve_runs

    console = stdout_console(quiet=quiet)

    def announce(url: str) -> None:
        say(console, f"Serving {', '.join(map(str, run))} at {url}; Ctrl-C ends it")
        sys.stdout.flush()

    serve_runs(run, config, announce=announce)

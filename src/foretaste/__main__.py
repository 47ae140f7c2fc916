"""``python -m foretaste`` and ``foretaste``: the command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; an interrupt while it is being imported ends it as one after does."""
    try:
        from foretaste.cli.app import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    status = 0
    try:
        run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    # All is written and closed by now. What Python does on its way out took .03 s more where
    # nothing was to do, and .1 to .5 s where answers were ranked.
    os._exit(status)


if __name__ == "__main__":
    main()

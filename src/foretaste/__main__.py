"""``python -m foretaste`` and ``foretaste``: the command line."""

from __future__ import annotations

import sys

from foretaste.host import leave


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
    leave(status)  # all is written and closed by now


if __name__ == "__main__":
    main()

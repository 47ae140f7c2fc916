"""``python -m foretaste`` and ``foretaste``: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt while it is being imported ends it as one after does."""
    try:
        from foretaste.cli.app import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

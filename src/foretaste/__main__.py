"""``python -m foretaste``: the command line."""

from foretaste.cli.app import main

main()

"""Shell scripts whose ``foretaste`` commands this process runs, so that none imports torch."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cli.conftest import Done, call

_COMMAND = """#!/bin/sh
cd {programs}
printf '%s\\0' "$@" > words
echo > asked
read -r status < answered
cat out
cat err >&2
exit "$status"
"""


def run_script(line: Sequence[object], programs: Path, env: Mapping[str, str]) -> Done:
    """Run a script with ``programs`` as the first folder of its PATH, and its ``foretaste``
    commands in the current folder."""
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "foretaste").write_text(_COMMAND.format(programs=shlex.quote(str(programs))))
    (programs / "foretaste").chmod(0o755)
    for pipe in ("asked", "answered"):
        (programs / pipe).unlink(missing_ok=True)
        os.mkfifo(programs / pipe)
    with (
        (programs / "asked").open("r+b", buffering=0) as asked,
        (programs / "answered").open("r+b", buffering=0) as answered,
        (programs / "script-out").open("w") as out,
        (programs / "script-err").open("w") as err,
        subprocess.Popen(
            [*map(str, line)],
            env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"} | env,
            stdout=out,
            stderr=err,
        ) as process,
    ):
        try:
            while process.poll() is None:
                if select.select([asked], [], [], 0.05)[0]:
                    asked.readline()
                    done = call(*(programs / "words").read_text().split("\0")[:-1])
                    (programs / "out").write_text(done.out)
                    (programs / "err").write_text(done.err)
                    answered.write(b"%d\n" % done.status)
        finally:
            process.kill()
    return Done(
        process.returncode,
        (programs / "script-out").read_text(),
        (programs / "script-err").read_text(),
    )

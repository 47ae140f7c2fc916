"""Shell scripts whose ``foretaste`` commands this process runs, so that none imports torch."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cli.conftest import Done, call

_COMMAND = """#!/bin/sh
cd {folder}
printf '%s\\n' "$@" "" > words
read -r status < status
cat out
cat err >&2
exit "$status"
"""


def run_script(line: Sequence[object], folder: Path, env: Mapping[str, str]) -> Done:
    """Run a script, and its commands in the current folder; they are handed on in ``folder``."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "foretaste").write_text(_COMMAND.format(folder=shlex.quote(str(folder))))
    (programs / "foretaste").chmod(0o755)
    for pipe in ("words", "status"):
        (folder / pipe).unlink(missing_ok=True)
        os.mkfifo(folder / pipe)

    def finish() -> Done:
        try:
            out, err = process.communicate(timeout=600)
            return Done(process.returncode, out, err)
        finally:
            process.kill()
            asked.write(b"\n")

    with (
        (folder / "words").open("r+b", buffering=0) as asked,
        (folder / "status").open("r+b", buffering=0) as answered,
        ThreadPoolExecutor(1) as thread,
        subprocess.Popen(
            [*map(str, line)],
            env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        finished = thread.submit(finish)
        while words := [*iter(asked.readline, b"\n")]:
            done = Done(1, "", "")
            try:
                done = call(*(word.decode().removesuffix("\n") for word in words))
            except BaseException:
                process.kill()
                raise
            finally:
                (folder / "out").write_text(done.out)
                (folder / "err").write_text(done.err)
                answered.write(b"%d\n" % done.status)
        return finished.result()

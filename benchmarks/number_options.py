"""Every number option of every command at every edge of its range, under a memory limit.

Each case is a process of its own that may take a little more memory than it begins with. It is
right where the command answers, says in one message what is wrong, or is still busy after a while;
a traceback, a kill and memory refused by the system are findings. Run in a clone:

    python -m benchmarks.number_options [COMMAND ...]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cyclopts import App

from foretaste.cli.app import app, main
from foretaste.cli.arguments import kinds_of

EDGES = (
    *("0", "-1", "1", str(2**31 - 1), str(2**31), str(2**63), str(10**9), str(10**18)),
    *("1e308", "nan", "inf", "", "1e3", "0x10"),
)

MORE_BYTES = 2 << 30
"""Memory that a case may map above that of the process with everything imported."""

SECONDS = 8

FINE = ("answered", "refused", "busy")

LINES = {
    "prepare": "prepare ratings.csv --output new",
    "demo": "demo",
    "evaluate": "evaluate runs/neumf",
    "compare": "compare runs/neumf runs/popularity",
    "recommend": "recommend runs/neumf --user 1",
    "similar": "similar runs/neumf --item 1",
    "train": "train {model} data --run runs/new",
    "bench": "bench {verb} {model} --shape 60x40x300 --repeats 1 --warmup 0",
}
"""A command line that does little, by verb."""

SMALL = {
    "train": {"--epochs": "1"},
    "bench": {"--calls": "2", "--batch-sizes": "2", "--steps": "1"},
}
"""Options that keep a case short, where the command has them and they are not the one tried."""


@dataclass(frozen=True)
class Case:
    """One option of one command at one edge."""

    command: str
    option: str
    value: str
    line: tuple[str, ...]


def commands(program: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command that does something, with its words."""
    if program.default_command is not None and words:
        yield words, program
    for word in program:
        if not word.startswith("-"):
            yield from commands(program[word], (*words, word))


def number_options(command: App) -> Iterator[str]:
    """The long names of its options that take numbers."""
    for argument in command.assemble_argument_collection():
        if kinds_of(argument.hint) & {int, float}:
            yield next(name for name in argument.names if name.startswith("--"))


def cases(chosen: list[str]) -> Iterator[Case]:
    """Every case of the commands that begin with one of these words, or of all."""
    for words, command in commands(app):
        name = " ".join(words)
        if words[0] not in LINES or (chosen and not any(map(name.startswith, chosen))):
            continue
        options = sorted(number_options(command))
        line = LINES[words[0]].format(verb=words[-2] if len(words) > 2 else "", model=words[-1])
        for option in options:
            small = SMALL.get(words[0], {}).items()
            kept = [part for at, value in small if at in options and at != option
                    for part in (at, value)]  # fmt: skip
            for value in EDGES:
                given = f"{value},{value}" if option == "--layers" else value
                yield Case(name, option, value, (*line.split(), *kept, f"{option}={given}"))
    if not chosen or "prepare" in chosen:
        for value in EDGES:
            limit = f"--memory-limit={value}GB"
            yield Case("prepare", "--memory-limit", value, (*LINES["prepare"].split(), limit))


def make_world() -> None:
    """The files that the command lines name, made by processes of their own."""
    rows = "".join(f"{u},{i},{u + i}\n" for u in range(40) for i in range(u % 7, 30, 3))
    Path("ratings.csv").write_text("user_id,item_id,timestamp\n" + rows)
    for line in (
        "prepare ratings.csv --output data",
        "train neumf data --factors 2 --layers 4 2 --epochs 1 --run runs/neumf",
        "train popularity data --run runs/popularity",
    ):
        command = [sys.executable, "-m", "foretaste", *line.split()]
        subprocess.run(command, check=True, capture_output=True)


def outcome(case: Case) -> tuple[str, str]:
    """Outcome of a case in a word, and the text it printed."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            _run_case(case, printed.fileno())
        status = os.waitpid(child, 0)[1]
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and any process of its own
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    shutil.rmtree("new", ignore_errors=True)
    shutil.rmtree("runs/new", ignore_errors=True)
    return _kind(status, text), text


def _run_case(case: Case, output: int) -> NoReturn:
    """In a process of its own: run the command, and end with its status."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    _limit_memory()
    signal.alarm(SECONDS)
    status = 0
    try:
        main(case.line)
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 70
    sys.stderr.flush()
    os._exit(status)


def _kind(status: int, text: str) -> str:
    if "Traceback" in text:
        return "traceback"
    if os.WIFSIGNALED(status):
        return "busy" if os.WTERMSIG(status) == signal.SIGALRM else "killed"
    code = os.WEXITSTATUS(status)
    if code == 2 and "memory was refused" in text:
        return "memory refused"
    return {0: "answered", 2: "refused"}.get(code, f"status {code}")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(chosen: list[str]) -> int:
    """Try every case; prints the findings and the counts."""
    # Imported once, before any process is split off: a case is then a tenth of a second.
    import foretaste.bench.train
    import foretaste.evaluation.evaluator
    import foretaste.recommend
    import foretaste.report
    import foretaste.training.verbs  # noqa: F401

    assert threading.active_count() == 1
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        make_world()
        for case in cases(chosen):
            kind, text = outcome(case)
            found[kind] += 1
            last = (text.strip().splitlines() or [""])[-1]
            if kind not in FINE:
                print(f"{kind}: {' '.join(case.line)}: {last}", flush=True)
            elif os.environ.get("SHOW"):
                print(f"  {kind}: {' '.join(case.line)}: {last}", flush=True)
    print(f"{found.total()} cases: {dict(found)}")
    return sum(
        count for kind, count in found.items() if kind not in ("answered", "refused", "busy")
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*")
    sys.exit(min(run(parser.parse_args().commands), 1))

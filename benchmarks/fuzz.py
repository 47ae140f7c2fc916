"""A coverage-guided attack on everything that reads what somebody else wrote.

    pip install atheris
    python -m benchmarks.fuzz --minutes 10 --target csv
    python -m benchmarks.fuzz --replay fuzz/csv/crash-...

Preparing or opening any file must end with a result that reads back whole or with one
ForetasteError of a readable length, within a minute, and leave nothing half-written behind. A case
that does otherwise ends the hunt of its target and is kept under ``--output`` as ``crash-...`` or
``timeout-...``; one that took ten seconds is kept as ``slow-unit-...``. ``corpus`` beside them has
the cases that reached new code: the next hunt starts with them. Each hunt prints a line with
minutes, executions and what is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.fuzz_targets import TARGETS, attack, corpus, sha256

LONGEST_CASE_S = 60
LONGEST_INPUT_BYTES = 1 << 14


def hunt(target: str, output: Path, minutes: float) -> None:
    """Mutate cases, keep those that reach new code, until the time is up or something is found."""
    import atheris

    folder = output / target / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for case in corpus(target):
        (folder / f"seed-{sha256(case)[:16]}").write_bytes(case)
    for name in list(sys.modules):
        if name.startswith("foretaste.data") or name == "foretaste.recommend.inputs":
            instrument(atheris, sys.modules[name])
    options = {
        "artifact_prefix": f"{output / target}/",
        "timeout": LONGEST_CASE_S,
        "max_total_time": round(minutes * 60),
        "max_len": LONGEST_INPUT_BYTES,
        "rss_limit_mb": 0,
        "print_final_stats": 1,
    }
    given = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *given, str(folder)], lambda data: attack(target, data))
    atheris.Fuzz()


def instrument(atheris: Any, module: Any) -> None:
    """Make the functions and methods of a module report their executed lines."""
    for holder in [module, *(value for value in vars(module).values() if isinstance(value, type))]:
        for value in list(vars(holder).values()):
            plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if getattr(plain, "__module__", None) == module.__name__ and hasattr(plain, "__code__"):
                plain.__code__ = atheris.patch_code(plain.__code__, True)


def report(target: str, output: Path, minutes: float) -> int:
    """Hunt in a process of its own, which ends with what it finds; its exit status."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.fuzz", "--target", target, "--output", str(output)]
    done = subprocess.run(
        [*command, "--minutes", str(minutes), "--here"], text=True, stderr=subprocess.PIPE
    )
    (output / target).mkdir(parents=True, exist_ok=True)
    (output / target / "log.txt").write_text(done.stderr)
    counted = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    row = {
        "target": target,
        "minutes": round((time.monotonic() - began) / 60, 2),
        "executions": int(counted[-1].split()[-1]) if counted else None,
        "kept": sorted(path.name for path in (output / target).glob("*-*")),
    }
    print(json.dumps(row), flush=True)
    return done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each target")
    parser.add_argument("--output", type=Path, default=Path("fuzz"))
    parser.add_argument("--replay", type=Path, help="a kept case; its folder names the target")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay:
        attack(given.replay.absolute().parent.name, given.replay.read_bytes())
    elif given.here:
        hunt(given.target, given.output, given.minutes)
    else:
        targets = list(TARGETS) if given.target == "all" else [given.target]
        sys.exit(max(report(target, given.output, given.minutes) for target in targets))


if __name__ == "__main__":
    main()

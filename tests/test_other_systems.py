"""Fit, save, open, recommend, train and evaluate without features of Linux or Unix alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.test_walls import PACKAGE, all_imports

OF_UNIX = {"fcntl", "grp", "posix", "pwd", "resource", "termios"}
OF_SOME = {
    *("fork", "getuid", "geteuid", "killpg", "mkfifo", "register_at_fork", "sched_getaffinity"),
    *("SIGHUP", "SIGKILL", "SIGUSR1", "O_NOFOLLOW", "O_DIRECTORY"),
}
"""Names of `os` and `signal` that only some systems have."""

SYSTEM = PACKAGE / "_util" / "system.py"

HIDDEN = """
import builtins, io, os, pathlib, signal, sys

# What others lean on of Linux is theirs, and loaded before.
import torch, duckdb, pyarrow.parquet, pyarrow.csv, pandas, safetensors.torch, lazy_loader
import multiprocessing, subprocess, tempfile, shutil, socket

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getuid", "geteuid", "killpg", "mkfifo", "register_at_fork",
             "sched_getaffinity", "O_NOFOLLOW", "O_DIRECTORY"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGUSR1"):
    delattr(signal, name)
sys.platform = "win32"
import foretaste._util.system  # flushes no directories from here on
sys.platform = "elsewhere"  # no renameat2

def hiding(call, is_hidden):
    def refuse(path, *given, **named):
        if is_hidden(path, *given):
            raise FileNotFoundError(2, "hidden", str(path))
        return call(path, *given, **named)
    return refuse

def of_linux(path, *given):
    return isinstance(path, (str, os.PathLike)) and str(path).startswith(("/proc", "/sys"))

for module, names in ((os, ("stat", "open", "listdir", "scandir")), (io, ("open",)),
                      (builtins, ("open",))):
    for name in names:
        setattr(module, name, hiding(getattr(module, name), of_linux))
opened = os.open
os.open = hiding(opened, lambda path, *given: os.path.isdir(path))

import pyarrow as pa
import foretaste
from foretaste.data import GenerateConfig, generate

if __name__ == "__main__":
    shape = GenerateConfig(num_users=40, num_items=20, num_interactions=400, num_genres=2)
    table = generate(shape).table
    fitted = foretaste.fit("ease", table, device="cpu")
    saved = fitted.save("saved")
    again = foretaste.load(saved, device="cpu")
    users = again.users.ids()[:3]
    assert [one.item_ids for one in again.recommend(users, k=3)] == [
        one.item_ids for one in fitted.recommend(users, k=3)
    ]
    data = foretaste.prepare(table, "data", protocol="leave-one-out")
    for number in range(2):  # the second takes the place of the first
        run = foretaste.train("gmf", data, run="run", epochs=1, factors=2, device="cpu",
                              overwrite=bool(number))
    assert foretaste.evaluate_run(run, data, device="cpu")["ndcg@10"] > 0
    foretaste.prepare(table, "data", protocol="none", overwrite=True)
"""


def test_common_work_needs_no_feature_of_linux(tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN)
    done = subprocess.run(
        [sys.executable, "hidden.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_code_that_some_systems_lack_is_in_one_file() -> None:
    """The service is excepted, because it is for Unix."""
    found = [str(one) for _, one in all_imports() if one.module.partition(".")[0] in OF_UNIX]
    for file in PACKAGE.rglob("*.py"):
        if file == SYSTEM or file.is_relative_to(PACKAGE / "serve"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else None
            text = node.value if isinstance(node, ast.Constant) else None
            if name in OF_SOME or (isinstance(text, str) and text.startswith(("/proc/", "/sys/"))):
                found.append(f"{file.relative_to(PACKAGE)}:{node.lineno} {name or text}")
    assert {one.partition(":")[0] for one in found} <= {"_util/system.py"}, found

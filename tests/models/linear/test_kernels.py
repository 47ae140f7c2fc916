"""The processes and moments in which Numba compiles the loops over pairs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import foretaste

PACKAGE = Path(foretaste.__file__).parent

FIT = """
import torch
from foretaste.models.registry import build_model, config_class
from foretaste.ops.histories import HistoryTensors

def fitted():
    items = torch.tensor([0, 1, 1, 2, 0, 2, 3, 4, 2, 5], dtype=torch.int32)
    config = config_class("ease")(neighbors=2, l2=1.0, dropout=0.0, user_power=0.0)
    model = build_model("ease", config, 5, 6)
    model.fit(HistoryTensors(torch.arange(0, 11, 2), items, 6), lambda *how_far: None)
    return model.weight_M
"""


GROUP = """
import numpy as np
from foretaste.models.linear.kernels import group_by_other

def grouped():
    item_M, value_M = np.zeros(2, np.int32), np.zeros(2, np.float32)
    others, values = np.array([[1], [0]], np.int32), np.ones((2, 1), np.float32)
    group_by_other(others, values, np.zeros(3, np.int64), item_M, value_M)
    return item_M.tolist()
"""
"""One of the loops, which takes a second to compile."""


def run(code: str, source: Path = PACKAGE.parent, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"PYTHONPATH": str(source)} | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_without_a_folder_for_the_cache_every_process_compiles(tmp_path: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "foretaste", ignore=skipped)
    (tmp_path / "foretaste" / "models" / "linear" / "__pycache__").touch()
    # A file stands at the place of each folder.
    nowhere = {
        name: str(tmp_path / "foretaste" / "__init__.py") for name in ("HOME", "XDG_CACHE_HOME")
    }
    run(GROUP + "assert grouped() == [1, 0]", tmp_path, PYTHONDONTWRITEBYTECODE="1", **nowhere)


@pytest.mark.slow
def test_a_full_disk_means_compiling_again(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    run(limit + GROUP + "assert grouped() == [1, 0]", NUMBA_CACHE_DIR=str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_fits_like_its_parent() -> None:
    run(
        FIT
        + """
torch.set_num_threads(2)
import os, warnings
warnings.simplefilter("ignore")  # on the threads of the child
expected = fitted()
if not (child := os.fork()):
    os._exit(0 if torch.equal(fitted(), expected) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    )

"""A child that is forked from a process with a GPU gets an error that it has none."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

PROGRAM = """
import os, torch
from foretaste.errors import UnsupportedError
from foretaste.ops.device import resolve_device

torch.ones(1, device=resolve_device("auto"))
child = os.fork()
if not child:
    for name in ("auto", "cuda"):
        try:
            resolve_device(name)
        except UnsupportedError as error:
            print(error, resolve_device("cpu"), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_gets_an_error_that_it_has_no_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    *said, status = done.stdout.splitlines()
    assert status == "0", done.stderr
    assert len(said) == 2
    assert all("forked from one that had used a GPU" in line for line in said), done.stdout

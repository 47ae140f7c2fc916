"""The Triton kernels on a machine without a GPU: interpreted, and compiled but not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretaste.ops.triton import support as triton_support

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]

pytestmark = pytest.mark.skipif(
    not triton_support.is_installed(), reason="Triton is not installed on this machine"
)


def run(*arguments: str, **variables: str) -> str:
    """Output of Python in a process of its own: Triton decides at import how it works."""
    dropped = ("PYTEST", "TRITON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=REPOSITORY,
        env=kept | {"OMP_NUM_THREADS": "1"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cases", ["triton_cases.py", "triton_logits_cases.py", "../kernels_cases.py"]
)
def test_kernels_are_right_in_the_interpreter(cases: str) -> None:
    path = str(HERE / cases)
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", path, TRITON_INTERPRET="1")
    assert "passed" in output


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile(capability: str, tmp_path: Path) -> None:
    """For GPUs that are not here, and within the shared memory they have."""
    script = str(HERE / "compile_kernels.py")
    output = run(script, capability, TRITON_CACHE_DIR=str(tmp_path), PYTHONPATH=_path())
    assert "interaction_step" in output
    assert "interaction_logits" in output
    assert "_sum_pieces" in output


def _path() -> str:
    import foretaste

    return os.pathsep.join([str(REPOSITORY), str(Path(foretaste.__file__).parents[1])])

"""The Triton kernels on a machine without a GPU: interpreted, and compiled but not run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from foretaste.ops.triton import support as triton_support

DOCUMENTED = "3.7.1"
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
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs these cases itself: tests/gpu")
@pytest.mark.parametrize("cases", ["triton_cases.py", "../triton_checks_cases.py"])
def test_kernels_are_right_in_the_interpreter(cases: str) -> None:
    path = str(HERE / cases)
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", path, TRITON_INTERPRET="1")
    assert "passed" in output


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (80, {"256-64": "fits", "256-128": "does not fit"}),
        (86, {"128-64": "fits", "256-64": "does not fit"}),
        (120, {"128-64": "fits", "256-64": "does not fit"}),
        (90, {"256-128-64": "fits"}),
        (100, {"32-16-8": "is not compiled"}),
    ],
)
def test_kernels_compile_and_fit_like_the_docs_say(
    capability: int, expected: dict[str, str], tmp_path: Path
) -> None:
    """Kernels compile for GPUs that this machine lacks."""
    if version("triton") != DOCUMENTED:
        pytest.skip(f"docs/install.md says what Triton {DOCUMENTED} needs")
    script = str(HERE / "compile_kernels.py")
    paths = {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": _path()}
    output = run(script, str(capability), *expected, **paths)
    said = {
        "fits": "_sum_segments:",
        "does not fit": "takes more than this GPU has (shared memory: ",
        "is not compiled": "does not compile a kernel for these widths on this GPU",
    }
    found = [
        [one for one, text in said.items() if text in of_tower]
        for of_tower in output.removesuffix("---\n").split("---\n")
    ]
    assert found == [[one] for one in expected.values()], output


def _path() -> str:
    import foretaste

    return os.pathsep.join([str(REPOSITORY), str(Path(foretaste.__file__).parents[1])])


def test_other_errors_of_a_launch_pass_unchanged() -> None:
    class Broken:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def fail(*given: object, **named: object) -> None:
                raise RuntimeError("Triton Error [CUDA]: out of memory")

            return fail

    with pytest.raises(RuntimeError, match="out of memory"):
        triton_support.launch(Broken(), 1, torch.zeros(1))  # type: ignore[arg-type]

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
def test_kernels_are_right_in_the_interpreter() -> None:
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.ops.interpreted")
    paths = (str(HERE / "triton_cases.py"), str(HERE.parent / "triton_checks_cases.py"))
    output = run("-m", "pytest", *options, *paths, TRITON_INTERPRET="1", PYTHONPATH=_path())
    assert "passed" in output


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kernels_compile_and_fit_like_the_docs_say(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Kernels compile for GPUs that this machine lacks."""
    if version("triton") != DOCUMENTED:
        pytest.skip(f"docs/install.md says what Triton {DOCUMENTED} needs")
    said = {
        "80:256-64": ["interaction_step: 102,400 bytes", "_sum_segments:"],
        "80:256-128": ["takes more than this GPU has (shared memory: 167,936 of 166,912)"],
        "86:256-64": ["takes more than this GPU has (shared memory: 102,400 of 101,376)"],
        "120:128-64": ["interaction_step: 53,248 bytes", "_sum_segments:"],
        "90:256-128-64": ["interaction_step: 118,784 bytes", "_sum_segments:"],
        "100:32-16-8": ["does not compile a kernel for these widths on this GPU"],
    }
    paths = {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": _path()}
    output = run(str(HERE / "compile_kernels.py"), *said, **paths)
    found = output.removesuffix("---\n").split("---\n")
    for (case, texts), lines in zip(said.items(), found, strict=True):
        with subtests.test(case):
            assert [text for text in texts if text in lines] == texts, lines


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

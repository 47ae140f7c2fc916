"""The Triton kernels on a machine without a GPU: interpreted, and compiled but not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from foretaste.ops.neumf_loss.inputs import InteractionInputs
from foretaste.ops.triton import support as triton_support
from tests.ops.neumf_loss.test_chunked import Shape, make_inputs, make_samples

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
@pytest.mark.parametrize("cases", ["triton_cases.py", "../kernels_cases.py"])
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
    assert "_sum_pieces" in output


def _path() -> str:
    import foretaste

    return os.pathsep.join([str(REPOSITORY), str(Path(foretaste.__file__).parents[1])])


@pytest.mark.parametrize(
    ("capability", "shared_bytes", "widths", "fits"),
    [
        ((8, 0), 164 << 10, (256, 128, 64), False),
        ((8, 0), 164 << 10, (128, 64), True),
        ((9, 0), 228 << 10, (256, 128, 64), True),
    ],
)
def test_the_tower_fits_the_chip(
    capability: tuple[int, int],
    shared_bytes: int,
    widths: tuple[int, ...],
    fits: bool,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NVIDIA's sizes on an A100, where weights are held twice, and on an H100."""
    from foretaste.ops.triton import neumf_loss as triton_loss

    gpu = SimpleNamespace(shared_memory_per_multiprocessor=shared_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    inputs = make_inputs(Shape(widths=widths), generator, dtype=torch.float32)
    samples = make_samples(Shape(), generator)
    monkeypatch.setattr(InteractionInputs, "device", torch.device("cuda", 0))
    assert triton_loss.supports(inputs, samples, torch.bfloat16) == fits

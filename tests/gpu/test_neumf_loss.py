"""The interaction's kernels on a CUDA GPU: every case of the interpreter, and what needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from foretaste.ops.triton import support as triton_support

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)
if not triton_support.is_installed():
    pytest.skip("needs Triton", allow_module_level=True)

from foretaste.errors import UnsupportedError
from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss import reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs, Samples, TowerDropout
from foretaste.ops.triton import neumf_loss as triton_loss
from foretaste.ops.triton.checks import CASES, verify_kernels
from tests.ops.cases import rms
from tests.ops.neumf_loss.test_chunked import Shape, moved
from tests.ops.neumf_loss.triton_cases import *  # noqa: F403
from tests.ops.neumf_loss.triton_cases import make, values

NVIDIA = Shape(rows=5_000, candidates=5, items=2_000, factors=64, widths=(256, 128, 64))
HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def case() -> tuple[InteractionInputs, Samples]:
    """A step at NVIDIA's sizes on the GPU; it fits the kernel."""
    inputs, samples = make(NVIDIA, torch.device("cuda"), scale=0.1)
    try:
        triton_loss.loss(inputs, samples, compute_dtype=torch.float16)
    except UnsupportedError as error:
        pytest.skip(str(error))
    return inputs, samples


@pytest.fixture
def _no_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_accuracy_at_nvidias_sizes(
    rate: float, dtype: torch.dtype, case: tuple[InteractionInputs, Samples]
) -> None:
    inputs, samples = case
    dropout = TowerDropout(rate, key=5)
    exact, rough = moved(inputs, torch.float64), moved(inputs, dtype)
    truth = values(reference.loss(exact, samples, dropout), exact)
    plain = values(reference.loss(rough, samples, dropout), rough)
    found = values(triton_loss.loss(inputs, samples, dropout, compute_dtype=dtype), inputs)
    for one, other, true in zip(found, plain, truth, strict=True):
        assert rms([one - true]) <= 1.5 * rms([other - true]) + 2e-7 * rms([true])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_equal_steps_give_equal_bits(
    dtype: torch.dtype, case: tuple[InteractionInputs, Samples]
) -> None:
    inputs, samples = case
    dropout = TowerDropout(0.5, key=5)
    first, second = (
        values(triton_loss.loss(inputs, samples, dropout, compute_dtype=dtype), inputs)
        for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.usefixtures("_no_waiting")
def test_a_step_never_waits_for_the_device(case: tuple[InteractionInputs, Samples]) -> None:
    inputs, samples = case
    loss = triton_loss.loss(inputs, samples, TowerDropout(0.5, key=5), compute_dtype=torch.bfloat16)
    torch.autograd.grad(loss, inputs.tensors())


def test_kernels_are_right_here() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    for dtype in (torch.float32, *HALVES):
        verify_kernels(dict.fromkeys(CASES, dtype), device)


def test_the_kernel_is_used_if_the_setting_names_it(
    case: tuple[InteractionInputs, Samples],
) -> None:
    inputs, samples = case
    half = torch.float16
    kernel = triton_loss.loss(inputs, samples, compute_dtype=half)
    found = neumf_loss.loss(inputs, samples, compute_dtype=half, implementation="triton")
    assert torch.equal(found, kernel)
    chunked = neumf_loss.loss(inputs, samples, implementation="chunked")
    assert torch.equal(neumf_loss.loss(inputs, samples), chunked)

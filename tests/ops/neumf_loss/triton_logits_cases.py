"""Tests of the Triton kernel of inference; run as `triton_cases` is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from foretaste.ops import neumf_loss
from foretaste.ops.neumf_loss import reference
from foretaste.ops.neumf_loss.inputs import InteractionInputs
from foretaste.ops.neumf_loss.triton import logits as triton_logits
from foretaste.ops.triton.support import is_interpreted
from tests.ops.cases import rms
from tests.ops.neumf_loss.test_chunked import Shape, moved
from tests.ops.neumf_loss.triton_cases import DTYPES, SHAPES, make

SCORED = SHAPES | {
    "one pair": Shape(rows=1, candidates=1, items=1, factors=8, widths=(32, 16, 8)),
    "wide": Shape(rows=9, candidates=2, items=30, factors=70, widths=(300, 120, 70)),
}
SEEDS = range(6)
HALVES = [dtype for dtype in DTYPES if dtype.itemsize == 2]
WIDEST = Shape(rows=9, candidates=2, items=30, factors=4, widths=(40, 200, 140))


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu" if is_interpreted() else "cuda")


def every_item(inputs: InteractionInputs) -> torch.Tensor:
    """The whole catalogue as candidates of every row."""
    item_index_I = torch.arange(inputs.num_items, device=inputs.device)
    return item_index_I.expand(inputs.num_rows, -1)


def check(found: torch.Tensor, plain: torch.Tensor, truth: torch.Tensor) -> None:
    """At most half as inexact again as the plain form, beyond float32's last bits."""
    assert found.shape == truth.shape
    error, plain_error = rms([found.double() - truth]), rms([plain.double() - truth])
    assert error <= 1.5 * plain_error + 2e-7 * rms([truth])


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", SCORED)
def test_float32_logits_are_as_exact_as_the_plain_ones(
    name: str, index_dtype: torch.dtype, device: torch.device
) -> None:
    """Against float64, for candidates and for the catalogue."""
    inputs, samples = make(SCORED[name], device)
    exact, index_BK = moved(inputs, torch.float64), samples.item_index_BK.to(index_dtype)
    truth = reference.logits(exact, index_BK)
    found = neumf_loss.logits(inputs, index_BK, implementation="triton")
    assert found.dtype == torch.float32
    assert not found.requires_grad
    check(found, reference.logits(inputs, index_BK), truth)
    everything_BI = every_item(inputs)
    truth = reference.logits(exact, everything_BI)
    found = neumf_loss.catalogue_logits(inputs, implementation="triton")
    check(found, reference.logits(inputs, everything_BI), truth)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["neumf", "full tile", "wide", "first layer only"])
def test_products_in_any_dtype_are_as_exact_as_plain_ones(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Over several draws, from tables projected in the dtype of the products or in float32."""
    found, rounded, plain, truth = [], [], [], []
    for seed in SEEDS:
        inputs, samples = make(SCORED[name], device, seed, scale=0.2)
        index_BK = samples.item_index_BK
        truth.append(reference.logits(moved(inputs, torch.float64), index_BK))
        plain.append(reference.logits(moved(inputs, dtype), index_BK).double())
        found.append(triton_logits.logits(inputs, index_BK, compute_dtype=dtype))
        rounded.append(triton_logits.logits(projected_in(inputs, dtype), index_BK))
        assert rounded[-1].dtype == torch.float32
    check(torch.cat(found), torch.cat(plain), torch.cat(truth))
    check(torch.cat(rounded), torch.cat(plain), torch.cat(truth))


def projected_in(inputs: InteractionInputs, dtype: torch.dtype) -> InteractionInputs:
    return replace(
        inputs,
        user_tower_BH=inputs.user_tower_BH.detach().to(dtype),
        item_tower_IH=inputs.item_tower_IH.detach().to(dtype),
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", [*SCORED, "widest"])
def test_half_precision_inputs(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Logits have the dtype of the factors; only products and logits are rounded again."""
    inputs, samples = make((SCORED | {"widest": WIDEST})[name], device, scale=0.2)
    inputs = moved(inputs, dtype)
    exact, everything_BI = moved(inputs, torch.float64), every_item(inputs)
    found = triton_logits.logits(inputs, samples.item_index_BK)
    assert found.dtype == dtype
    plain = reference.logits(inputs, samples.item_index_BK)
    check(found, plain, reference.logits(exact, samples.item_index_BK))
    found, plain = triton_logits.catalogue_logits(inputs), reference.logits(inputs, everything_BI)
    assert found.dtype == dtype
    check(found, plain, reference.logits(exact, everything_BI))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", ["neumf", "shuffled", "gmf", "mlp"])
def test_rows_are_looked_up(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Bit for bit as if the users' rows had been gathered; the same ones may come again."""
    inputs, _ = make(SCORED[name], device)
    generator = torch.Generator().manual_seed(4)
    user_B = torch.randint(inputs.num_rows, (75,), generator=generator).to(device, dtype)
    item_BK = torch.randint(inputs.num_items, (75, 3), generator=generator).to(device)
    gathered = replace(
        inputs,
        user_product_BF=inputs.user_product_BF[user_B.long()],
        user_tower_BH=inputs.user_tower_BH[user_B.long()],
    )
    found = neumf_loss.logits(inputs, item_BK, user_B, implementation="triton")
    assert torch.equal(found, triton_logits.logits(gathered, item_BK))


def test_more_samples_than_int32_counts(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, samples = make(SCORED["neumf"], device)
    expected = triton_logits.logits(inputs, samples.item_index_BK)
    monkeypatch.setattr(triton_logits, "_INT32_MOST", 0)
    assert torch.equal(triton_logits.logits(inputs, samples.item_index_BK), expected)


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_catalogues_of_few_and_of_many_rows(rows: int, device: torch.device) -> None:
    inputs, _ = make(Shape(rows=rows, items=70, factors=8, widths=(24, 16)), device)
    expected = triton_logits.logits(inputs, every_item(inputs))
    torch.testing.assert_close(triton_logits.catalogue_logits(inputs), expected)


def test_logits_of_inputs_that_lie_anyhow(device: torch.device) -> None:
    inputs, samples = make(SCORED["neumf"], device)
    scattered = InteractionInputs.of(
        tuple(tensor.repeat_interleave(2, dim=-1)[..., ::2] for tensor in inputs.tensors())
    )
    index_BK, user_B = samples.item_index_BK, torch.arange(inputs.num_rows, device=device)
    expected = triton_logits.logits(inputs, index_BK)
    index_KB, twice_B = index_BK.T.contiguous(), user_B.repeat_interleave(2)
    assert torch.equal(triton_logits.logits(scattered, index_KB.T, twice_B[::2]), expected)
    everything = triton_logits.catalogue_logits(inputs)
    assert torch.equal(triton_logits.catalogue_logits(scattered), everything)


def test_no_logits_of_nobody_and_nothing(device: torch.device) -> None:
    nobody, samples = make(Shape(rows=0), device)
    assert triton_logits.logits(nobody, samples.item_index_BK).shape == (0, 5)
    assert triton_logits.catalogue_logits(nobody).shape == (0, 17)
    inputs, samples = make(Shape(), device)
    assert triton_logits.logits(inputs, samples.item_index_BK[:, :0]).shape == (11, 0)
    no_user_B = samples.item_index_BK[:0, 0]
    found = triton_logits.logits(inputs, samples.item_index_BK[:0], no_user_B)
    assert found.shape == (0, 5)


def test_scoring_leaves_inputs_as_they_were(device: torch.device) -> None:
    inputs, samples = make(SCORED["neumf"], device)
    before = [tensor.detach().clone() for tensor in inputs.tensors()]
    triton_logits.logits(inputs, samples.item_index_BK, compute_dtype=torch.float16)
    triton_logits.catalogue_logits(inputs)
    torch.testing.assert_close([tensor.detach() for tensor in inputs.tensors()], before)


@pytest.mark.parametrize("scale", [50.0, 1000.0])
def test_huge_logits_stay_finite(scale: float, device: torch.device) -> None:
    inputs, samples = make(SCORED["neumf"], device, scale=scale)
    found = triton_logits.logits(inputs, samples.item_index_BK)
    assert found.isfinite().all()
    plain = reference.logits(inputs, samples.item_index_BK)
    check(found, plain, reference.logits(moved(inputs, torch.float64), samples.item_index_BK))


def test_what_is_scored(device: torch.device) -> None:
    """Any first layer and any factors; later layers as wide as registers allow."""
    inputs, _ = make(Shape(items=3, factors=700, widths=(2000, 128, 128)), device)
    assert triton_logits.supports(inputs, torch.float32)
    assert not triton_logits.supports(moved(inputs, torch.float64), torch.float32)
    assert not triton_logits.supports(inputs, torch.float64)
    inputs, _ = make(Shape(items=3, factors=4, widths=(64, 256)), device)
    assert triton_logits.supports(inputs, torch.float16)
    assert not triton_logits.supports(inputs, torch.float32)
    inputs, _ = make(Shape(items=3, factors=4, widths=(64, 257)), device)
    assert not triton_logits.supports(inputs, torch.float16)
    inputs, _ = make(Shape(items=3, factors=4, widths=(4000,)), device)
    assert triton_logits.supports(inputs, torch.float32)

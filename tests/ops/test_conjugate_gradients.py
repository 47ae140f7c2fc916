"""Conjugate gradients of rows, beside the normal equations in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from foretaste.ops import conjugate_gradients
from foretaste.ops.conjugate_gradients import improve_rows
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.least_squares import FixedVectors
from tests.ops.test_least_squares import (
    LENGTHS,
    WEIGHT,
    WIDTH,
    histories,
    normal_equations,
    ridges,
    vectors,
)

__all__ = ["ridges", "vectors"]
rows_alike = pytest.fixture(name="rows_alike")(histories.__wrapped__)


@pytest.fixture(name="histories", params=[False, True], ids=["alike", "weighted"])
def _histories(
    request: pytest.FixtureRequest, rows_alike: HistoryTensors, generator: torch.Generator
) -> HistoryTensors:
    if not request.param:
        return rows_alike
    # Weights are at most 1 because the bound on the remaining loss assumes it.
    weight = 0.1 + 0.9 * torch.rand(rows_alike.item_index.numel(), generator=generator)
    return replace(rows_alike, weight=weight)


@pytest.fixture
def starts(generator: torch.Generator) -> Tensor:
    return torch.randn(len(LENGTHS), WIDTH, generator=generator)


def loss_of(
    solution_RD: Tensor, vectors: Tensor, histories: HistoryTensors, ridges: Tensor
) -> float:
    """The loss by its definition, in float64."""
    score_RN = solution_RD.double() @ vectors.double().T
    loss = (histories.to_dense() * (score_RN - 1.0).square()).sum()
    loss += WEIGHT * score_RN.square().sum()
    return float(loss + (ridges * solution_RD.double().square().sum(1)).sum())


def test_two_steps_bring_a_loss_near_the_least(
    vectors: Tensor, histories: HistoryTensors, ridges: Tensor, starts: Tensor
) -> None:
    """The condition number's bound leaves (2 / (c² + 1 / c²))² of the possible gain."""
    least = loss_of(normal_equations(vectors, histories, ridges), vectors, histories, ridges)
    root = (1.0 + 1.0 / WEIGHT) ** 0.5
    ratio = ((root + 1.0) / (root - 1.0)) ** 2
    bound = (2.0 / (ratio + 1.0 / ratio)) ** 2
    improved_RD, loss = improve_rows(FixedVectors.of(vectors), histories, WEIGHT, ridges, starts)
    assert float(loss) == pytest.approx(loss_of(improved_RD, vectors, histories, ridges), rel=1e-5)
    gained = loss_of(starts, vectors, histories, ridges) - least
    assert 0.0 < float(loss) - least < bound * gained


@pytest.mark.parametrize("samples", [True, False])
def test_repeated_they_solve_the_normal_equations(
    samples: bool,
    vectors: Tensor,
    histories: HistoryTensors,
    ridges: Tensor,
    starts: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products of interactions are computed in either way; rows without items are zero at once."""
    monkeypatch.setattr(conjugate_gradients, "has_sampled_products", lambda: samples)
    fixed, found_RD = FixedVectors.of(vectors), starts
    for _ in range(20):
        found_RD, _ = improve_rows(fixed, histories, WEIGHT, ridges, found_RD)
        assert not found_RD[histories.lengths() == 0].any()
    expected_RD = normal_equations(vectors, histories, ridges)
    torch.testing.assert_close(found_RD.double(), expected_RD, rtol=1e-4, atol=1e-5)


def test_two_steps_solve_rows_of_two_items(
    vectors: Tensor, histories: HistoryTensors, ridges: Tensor, starts: Tensor
) -> None:
    """Two steps suffice from zero, and for rows of one item from anywhere: one step per
    eigenvalue."""
    expected_RD = normal_equations(vectors, histories, ridges)
    for start_RD, longest in ((torch.zeros_like(starts), 2), (starts, 1)):
        found_RD, _ = improve_rows(FixedVectors.of(vectors), histories, WEIGHT, ridges, start_RD)
        short_R = histories.lengths() <= longest
        torch.testing.assert_close(
            found_RD[short_R].double(), expected_RD[short_R], rtol=1e-4, atol=1e-5
        )
        assert not torch.allclose(found_RD.double(), expected_RD, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 8, 30])
def test_chunks_change_roundings_only(
    at_once: int,
    vectors: Tensor,
    histories: HistoryTensors,
    ridges: Tensor,
    starts: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    limit: Callable[..., None],
) -> None:
    """The pieces of a long row's sums also change roundings only."""
    given = (FixedVectors.of(vectors), histories, WEIGHT, ridges, starts)
    expected_RD, expected_loss = improve_rows(*given)
    limit(gradient_entries=at_once)
    monkeypatch.setattr(conjugate_gradients, "TERMS_AT_ONCE", 7)
    found_RD, loss = improve_rows(*given)
    torch.testing.assert_close(found_RD, expected_RD, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss, expected_loss)


def test_a_chunk_is_bounded(histories: HistoryTensors) -> None:
    offsets = histories.offsets.tolist()
    chunks = list(conjugate_gradients._chunks(offsets, 16))
    rows = [row for rows, _ in chunks for row in range(rows.start, rows.stop)]
    assert rows == list(range(len(LENGTHS)))
    for rows, places in chunks:
        assert (places.start, places.stop) == (offsets[rows.start], offsets[rows.stop])
        num_rows = rows.stop - rows.start
        assert num_rows == 1 or (num_rows <= 2 and places.stop - places.start <= 16)


def test_threads_change_nothing(
    vectors: Tensor,
    histories: HistoryTensors,
    ridges: Tensor,
    starts: Tensor,
    limit: Callable[..., None],
) -> None:
    limit(gradient_entries=16)
    num_threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            fixed = FixedVectors.of(vectors)
            results.append(improve_rows(fixed, histories, WEIGHT, ridges, starts))
    finally:
        torch.set_num_threads(num_threads)
    assert all(map(torch.equal, *results))


def test_histories_without_rows(vectors: Tensor) -> None:
    nothing = HistoryTensors(torch.zeros(1, dtype=torch.int64), torch.zeros(0).int(), len(vectors))
    improved_RD, loss = improve_rows(
        FixedVectors.of(vectors), nothing, WEIGHT, torch.zeros(0).double(), torch.zeros(0, WIDTH)
    )
    assert (improved_RD.shape, float(loss)) == ((0, WIDTH), 0.0)


def test_a_row_of_millions_of_items(generator: torch.Generator) -> None:
    """Sums of millions of terms of one sign, added one by one, are far off in float32."""
    number, ridge = 4_000_000, 4000.0
    vectors = torch.tensor([0.8, 0.0]) + 0.1 * torch.randn(number, 2, generator=generator)
    histories = HistoryTensors(torch.tensor([0, number]), torch.arange(number).int(), number)
    found_RD, loss = improve_rows(
        FixedVectors.of(vectors),
        histories,
        1e-4,
        torch.tensor([ridge], dtype=torch.float64),
        torch.zeros(1, 2),
    )
    sum_D = vectors.sum(0, dtype=torch.float64)
    system_DD = 1.0001 * vectors.double().T @ vectors.double() + ridge * torch.eye(2)
    solution_D = torch.linalg.solve(system_DD, sum_D)
    torch.testing.assert_close(found_RD[0].double(), solution_D, rtol=1e-4, atol=1e-4)
    assert float(loss) == pytest.approx(number - float(sum_D @ solution_D), rel=1e-3)

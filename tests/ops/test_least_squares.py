"""Least squares of rows, beside the normal equations in float64."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from foretaste.errors import TrainingError
from foretaste.ops import least_squares
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.least_squares import FixedVectors, solve_rows
from tests.messages import raises
from tests.ops.cases import histories_of

NUM_FIXED, WIDTH, WEIGHT = 60, 8, 0.2
LENGTHS = [0, 1, 3, 7, 8, 9, 40, 60, 2, 0, 33]
"""Lengths of rows with fewer items than the width, as many, and more."""


@pytest.fixture
def vectors(generator: torch.Generator) -> Tensor:
    return 0.4 * torch.randn(NUM_FIXED, WIDTH, generator=generator)


@pytest.fixture
def histories(generator: torch.Generator) -> HistoryTensors:
    rows = [set(torch.randperm(NUM_FIXED, generator=generator)[:n].tolist()) for n in LENGTHS]
    return histories_of(rows, NUM_FIXED)


@pytest.fixture
def ridges() -> Tensor:
    return torch.linspace(0.05, 2.0, len(LENGTHS), dtype=torch.float64)


def normal_equations(vectors: Tensor, histories: HistoryTensors, ridges: Tensor) -> Tensor:
    """The solutions by the papers' equations."""
    vector_ND, observed_RN = vectors.double(), histories.to_dense().double()
    solutions = []
    for observed_N, ridge in zip(observed_RN, ridges, strict=True):
        system_DD = (vector_ND.T * (observed_N + WEIGHT)) @ vector_ND
        system_DD += ridge * torch.eye(vectors.shape[1], dtype=torch.float64)
        solutions.append(torch.linalg.solve(system_DD, vector_ND.T @ observed_N))
    return torch.stack(solutions)


def test_solutions_equal_the_normal_equations(
    vectors: Tensor, histories: HistoryTensors, ridges: Tensor
) -> None:
    expected_RD = normal_equations(vectors, histories, ridges)
    found_RD = solve_rows(FixedVectors.of(vectors), histories, WEIGHT, ridges)
    torch.testing.assert_close(found_RD.double(), expected_RD, rtol=1e-4, atol=1e-5)
    assert torch.equal(found_RD[0], torch.zeros(WIDTH))


@pytest.mark.parametrize("width", [97, 136, 256])
def test_systems_that_are_padded(width: int, generator: torch.Generator) -> None:
    """A CPU pads large systems, both with the size of a row's items and with the size of the
    width."""
    vectors = 0.2 * torch.randn(200, width, generator=generator)
    rows = [set(torch.randperm(200, generator=generator)[:n].tolist()) for n in (96, 99, 129, 180)]
    histories, ridges = histories_of(rows, 200), torch.full((4,), 0.5, dtype=torch.float64)
    found_RD = solve_rows(FixedVectors.of(vectors), histories, WEIGHT, ridges)
    expected_RD = normal_equations(vectors, histories, ridges)
    torch.testing.assert_close(found_RD.double(), expected_RD, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("numbers", [1, 500])
def test_chunks_change_roundings_only(
    numbers: int,
    vectors: Tensor,
    histories: HistoryTensors,
    ridges: Tensor,
    limit: Callable[..., None],
) -> None:
    expected_RD = normal_equations(vectors, histories, ridges)
    limit(system_numbers=numbers)
    found_RD = solve_rows(FixedVectors.of(vectors), histories, WEIGHT, ridges)
    torch.testing.assert_close(found_RD.double(), expected_RD, rtol=1e-4, atol=1e-5)


def number_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_threads_change_nothing(
    vectors: Tensor, histories: HistoryTensors, ridges: Tensor, limit: Callable[..., None]
) -> None:
    """A half-sweep leaves the number of threads unchanged, here and in new threads."""
    limit(system_numbers=1)
    num_threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(solve_rows(FixedVectors.of(vectors), histories, WEIGHT, ridges))
            assert number_of_a_new_thread() == number
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(num_threads)
    assert torch.equal(*results)


def test_a_chunk_is_bounded_and_of_about_one_length() -> None:
    lengths = sorted([0, 0, *range(1, 90), *[5] * 200, 4000])
    chunks = list(least_squares._chunks(lengths, 16, numbers=16 * 16 * 20))
    assert [row for start, stop in chunks for row in range(start, stop)] == list(range(2, 292))
    for start, stop in chunks:
        longest = lengths[stop - 1]
        assert stop - start == 1 or (stop - start) * max(longest, 16) <= 16 * 20
        assert longest <= lengths[start] * 5 // 4 + 4


def test_systems_that_cannot_be_solved_are_refused(
    vectors: Tensor, histories: HistoryTensors
) -> None:
    vectors[3] = torch.inf
    with raises(TrainingError, "--regularization"):
        FixedVectors.of(vectors)
    vectors[3] = 0.0
    fixed = FixedVectors.of(vectors)
    ridges = torch.full((len(LENGTHS),), torch.nan, dtype=torch.float64)
    with raises(TrainingError, 9, 11):
        solve_rows(fixed, histories, WEIGHT, ridges)


def test_a_row_of_millions_of_items(generator: torch.Generator) -> None:
    """Sums of millions of terms of one sign, added one by one, are far off in float32."""
    number, ridge = 4_000_000, 4000.0
    vectors = torch.tensor([0.8, 0.0]) + 0.1 * torch.randn(number, 2, generator=generator)
    histories = HistoryTensors(torch.tensor([0, number]), torch.arange(number), number)
    found_RD = solve_rows(
        FixedVectors.of(vectors), histories, 1e-4, torch.tensor([ridge], dtype=torch.float64)
    )
    sum_D = vectors.sum(0, dtype=torch.float64)
    system_DD = 1.0001 * vectors.double().T @ vectors.double() + ridge * torch.eye(2)
    solution_D = torch.linalg.solve(system_DD, sum_D)
    torch.testing.assert_close(found_RD[0].double(), solution_D, rtol=1e-5, atol=1e-5)

from collections.abc import Callable

import numpy as np
import pytest
import torch

from foretaste.ops.inverse import invert_


@pytest.mark.parametrize("num_rows", [1, 8, 9, 37])
def test_the_inverse_of_the_lower_part(num_rows: int, limit: Callable[..., None]) -> None:
    """Blocks have eight rows, the last one fewer; the upper part is not read."""
    limit(inverse_rows=8)
    factor = np.random.default_rng(num_rows).normal(size=(num_rows, num_rows + 2))
    whole = factor @ factor.T + 0.1 * np.eye(num_rows)
    expected = np.linalg.inv(whole)
    lower = np.tril(whole) + np.triu(np.full_like(whole, np.nan), 1)
    matrix = torch.from_numpy(lower)
    done: list[int] = []
    invert_(matrix, done.append)
    assert np.abs(matrix.numpy() - expected).max() < 1e-9 * np.abs(expected).max()
    assert torch.equal(matrix, matrix.T)
    assert done == [*range(8, num_rows, 8), num_rows]


def test_a_matrix_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(torch.linalg.LinAlgError):
        invert_(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), lambda num_done: None)

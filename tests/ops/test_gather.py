"""Gathered rows, and gradients that are summed row by row."""

from __future__ import annotations

import torch

from foretaste.ops.gather import gather


def test_rows_and_gradients_are_those_of_indexing(generator: torch.Generator) -> None:
    index_B = torch.randint(0, 7, (40,), generator=generator, dtype=torch.int32)
    tables = [
        torch.randn(9, width, generator=generator, dtype=torch.float64, requires_grad=True)
        for width in (3, 5, 0)
    ]
    weights = [
        torch.randn(40, width, generator=generator, dtype=torch.float64) for width in (3, 5, 0)
    ]
    found = gather(index_B, *tables)
    expected = [table[index_B.long()] for table in tables]
    assert all(torch.equal(rows, same) for rows, same in zip(found, expected, strict=True))
    for given in (found, expected):
        for table in tables:
            table.grad = None
        sum((rows * weight).sum() for rows, weight in zip(given, weights, strict=True)).backward()
        gradients = [table.grad for table in tables]
        if given is found:
            ours = gradients
    for gradient, plain in zip(ours, gradients, strict=True):
        assert gradient is not None
        torch.testing.assert_close(gradient, plain)


def test_rows_that_were_not_gathered_have_no_gradient() -> None:
    table = torch.ones(4, 2, requires_grad=True)
    gather(torch.tensor([1, 1, 3]), table)[0].sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]

"""Values whose gradients are known beforehand."""

from __future__ import annotations

import pytest
import torch

from foretaste.ops.known_gradients import with_gradients


def test_backward_hands_on_what_is_known() -> None:
    first, second = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    known = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0])]
    value = with_gradients(torch.tensor(7.0), (first, second), known)
    assert value.item() == 7.0
    (2.0 * value).backward()
    torch.testing.assert_close(first.grad, 2.0 * known[0])
    torch.testing.assert_close(second.grad, 2.0 * known[1])


def test_an_unwanted_gradient_may_be_missing() -> None:
    wanted, fixed = torch.ones(3, requires_grad=True), torch.ones(2)
    value = with_gradients(torch.tensor(1.0), (wanted, fixed), [torch.full((3,), 5.0), None])
    value.backward()
    assert wanted.grad is not None
    assert wanted.grad.tolist() == [5.0, 5.0, 5.0]
    assert fixed.grad is None


def test_a_second_derivative_is_refused() -> None:
    """The known gradients are constants: differentiating them again would silently give zero."""
    point = torch.ones(3, requires_grad=True)
    value = with_gradients(point.detach().square().sum(), (point,), [2.0 * point.detach()])
    (slope,) = torch.autograd.grad(value * value, point, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()

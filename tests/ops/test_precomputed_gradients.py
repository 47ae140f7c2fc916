"""Gradients computed together with the value, and given to autograd."""

from __future__ import annotations

import torch

from foretaste.ops.precomputed_gradients import with_gradients


def test_gradients_are_scaled_and_not_copied() -> None:
    one, other = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    gradients = [torch.arange(3.0), torch.tensor([5.0, 7.0])]
    addresses = [gradient.data_ptr() for gradient in gradients]
    loss = with_gradients(torch.tensor(4.0), (one, other), gradients)
    gradients.clear()
    assert loss.item() == 4.0
    (2.0 * loss).backward()
    assert one.grad is not None
    assert other.grad is not None
    assert one.grad.tolist() == [0.0, 2.0, 4.0]
    assert other.grad.tolist() == [10.0, 14.0]
    assert [one.grad.data_ptr(), other.grad.data_ptr()] == addresses


def test_an_input_may_have_no_gradient() -> None:
    one, other = torch.ones(3, requires_grad=True), torch.ones(2)
    with_gradients(torch.tensor(1.0), (one, other), [torch.ones(3), None]).backward()
    assert one.grad is not None
    assert one.grad.tolist() == [1.0, 1.0, 1.0]

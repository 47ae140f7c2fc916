"""Private parts of PyTorch and the C library."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from foretaste.ops.torch_internals import (
    Adam,
    compute_alone,
)


def train(
    kind: type[torch.optim.Adam], device: torch.device, *, is_scaled: bool
) -> tuple[list[nn.Parameter], torch.optim.Adam]:
    """Twenty updates of two weights, the second of which has no gradient at first."""
    torch.manual_seed(3)
    weights = [nn.Parameter(torch.randn(size, device=device)) for size in ((7, 5), (11,))]
    settings = {"lr": 0.01, "betas": (0.25, 0.5), "eps": 1e-8}
    optimizer = kind(weights, fused=True, capturable=device.type == "cuda", **settings)  # type: ignore[arg-type]
    for update in range(20):
        optimizer.zero_grad(set_to_none=True)
        assert all(weight.grad is None for weight in weights)
        for weight in weights[: 1 if update < 5 else 2]:
            weight.grad = torch.randn_like(weight) * 100.0**-update
        if is_scaled:
            scale_with(optimizer, is_overflow=update % 3 == 0)
        optimizer.step()
    return weights, optimizer


def scale_with(optimizer: torch.optim.Adam, *, is_overflow: bool) -> None:
    """Scale gradients like the scaler of fp16."""
    device = optimizer.param_groups[0]["params"][0].device
    optimizer.grad_scale = torch.full((), 64.0, device=device)  # type: ignore[attr-defined]
    optimizer.found_inf = torch.full((), float(is_overflow), device=device)  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_scaled", [False, True])
def test_our_adam_equals_pytorchs(is_scaled: bool, device: torch.device) -> None:
    ours, our_optimizer = train(Adam, device, is_scaled=is_scaled)
    theirs, their_optimizer = train(torch.optim.Adam, device, is_scaled=is_scaled)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)
        state: dict[str, Tensor] = our_optimizer.state[one]
        expected: dict[str, Tensor] = their_optimizer.state[other]
        assert state.keys() == expected.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(state[name], expected[name]) for name in state)


def test_a_step_is_not_differentiated() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = Adam([weight], fused=True)
    weight.grad = torch.ones(3)
    optimizer.step()
    assert weight.grad_fn is None
    assert torch.is_grad_enabled()


def test_a_thread_that_computes_alone_changes_no_other() -> None:
    """Neither this thread nor a later one changes."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with ThreadPoolExecutor(1, initializer=compute_alone) as alone:
            assert alone.submit(torch.get_num_threads).result() == 1
            assert torch.get_num_threads() == 3
            with ThreadPoolExecutor(1) as later:
                assert later.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)

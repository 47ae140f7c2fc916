"""The optimizer of every neural model, and of users fitted to it."""

from __future__ import annotations

import inspect

import torch


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` without what keeps the compiler off it.

    PyTorch wraps these methods so that ``torch.compile`` does not trace them, and imports all of
    ``torch._dynamo`` to do so: 1.4 s and 140 MiB at the beginning of every training. What trains
    here is never traced: only losses are compiled. The methods underneath are PyTorch's own;
    ``step`` is given back the ``no_grad`` that its wrapping held.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))

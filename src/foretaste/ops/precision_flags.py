"""PyTorch's flags of how exact products are: held while the package computes.

The flags belong to the process. While the package computes, they are as it needs them, for the
application's other threads too; afterwards they are as the application had chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Condition, Lock
from typing import Any

import torch

EXACT = "ieee"
UNSET = "none"
"""What PyTorch calls the flag of an application that has chosen nothing: exact as well."""


class SharedFlag:
    """A flag that has one value at a time: threads that want the same one share it, others wait.

    First come, first served, so that nobody waits for ever. A thread that holds it must
    not ask for another value: it would wait for itself.
    """

    def __init__(self, backend: Any, name: str) -> None:
        self._backend = backend
        self._name = name
        self._turn = Lock()
        self._changed = Condition()
        self._num_holders = 0
        self._held: object = None
        self._application: object = None
        self._is_set = False

    @contextmanager
    def held(self, wanted: object) -> Iterator[None]:
        """Within, the flag is ``wanted``; afterwards it is as the application has it."""
        # A thread that waits keeps the turn: none that comes later overtakes it.
        with self._turn, self._changed:
            self._changed.wait_for(lambda: not self._num_holders or self._held == wanted)
            if not self._num_holders:
                self._held, self._application = wanted, getattr(self._backend, self._name)
                # "none" computes as exactly as "ieee": between these two nothing is set.
                both = {wanted, self._application}
                self._is_set = len(both) == 2 and both != {EXACT, UNSET}
                if self._is_set:
                    setattr(self._backend, self._name, wanted)
            self._num_holders += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_holders -= 1
                if not self._num_holders:
                    if self._is_set:
                        setattr(self._backend, self._name, self._application)
                    self._changed.notify_all()


_FLOAT32 = {
    "cuda": SharedFlag(torch.backends.cuda.matmul, "fp32_precision"),
    "cpu": SharedFlag(torch.backends.mkldnn.matmul, "fp32_precision"),  # type: ignore[attr-defined]
}
_ROUGH_SUMS = [
    SharedFlag(torch.backends.cuda.matmul, name)
    for name in (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
]
"""By PyTorch's defaults, half-precision products may add up in half precision."""


@contextmanager
def float32_products(device: torch.device, precision: str = EXACT) -> Iterator[None]:
    """Within, float32 products on ``device`` are computed in ``precision``: ``ieee`` or ``tf32``.

    Threads that compute by other flags meanwhile are waited for, and wait: keep it short.
    """
    with ExitStack() as stack:
        if device.type in _FLOAT32:
            stack.enter_context(_FLOAT32[device.type].held(precision))
        yield


@contextmanager
def exact_half_sums(device: torch.device) -> Iterator[None]:
    """Within, products of half precision add up in float32; so they do on a CPU anyway."""
    with ExitStack() as stack:
        for flag in _ROUGH_SUMS if device.type == "cuda" else ():
            stack.enter_context(flag.held(False))
        yield

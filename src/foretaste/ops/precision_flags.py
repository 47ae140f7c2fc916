"""PyTorch's flags of how exact products are, set while the package computes.

PyTorch has no switch for a single call: the flags belong to the process. While the package
computes, they have the values that it needs, for the application's other threads too; afterwards
they have the application's values again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

import torch

EXACT = "ieee"
_UNSET = "none"
"""What PyTorch calls the flag of an application that has chosen nothing: exact as well."""


class _Flag:
    """A flag that several threads may ask for: while they differ, it has the exact value."""

    # A thread that restores the value it found would leave another thread's value behind.

    def __init__(self, backend: object, name: str, exact: object) -> None:
        self._backend, self._name, self._exact = backend, name, exact
        self._lock = Lock()
        self._wanted: list[object] = []
        """The values that threads ask for now."""
        self._application: object = None

    @contextmanager
    def hold(self, wanted: object) -> Iterator[None]:
        with self._lock:
            if not self._wanted:
                self._application = getattr(self._backend, self._name)
            self._wanted.append(wanted)
            self._set()
        try:
            yield
        finally:
            with self._lock:
                self._wanted.remove(wanted)
                self._set()

    def _set(self) -> None:
        values = self._wanted or [self._application]
        value = self._exact if self._exact in values else values[0]
        now = getattr(self._backend, self._name)
        if now not in (value, _UNSET if value == EXACT else value):
            setattr(self._backend, self._name, value)


_FLOAT32 = {
    "cuda": _Flag(torch.backends.cuda.matmul, "fp32_precision", EXACT),
    "cpu": _Flag(torch.backends.mkldnn.matmul, "fp32_precision", EXACT),  # type: ignore[attr-defined]
}
_ROUGH_SUMS = [
    _Flag(torch.backends.cuda.matmul, name, False)
    for name in (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
]
"""PyTorch's defaults: half-precision products may add up in half precision."""


@contextmanager
def float32_products(device: torch.device, precision: str = EXACT) -> Iterator[None]:
    """Compute float32 products on ``device`` in ``precision``, ``ieee`` or ``tf32``, for a block.

    They are exact while another thread asks for exact ones.
    """
    with ExitStack() as stack:
        if device.type in _FLOAT32:
            stack.enter_context(_FLOAT32[device.type].hold(precision))
        yield


@contextmanager
def exact_half_sums(device: torch.device) -> Iterator[None]:
    """Add products of half precision up in float32 for a block, as a CPU always does."""
    with ExitStack() as stack:
        for flag in _ROUGH_SUMS if device.type == "cuda" else ():
            stack.enter_context(flag.hold(False))
        yield

"""PyTorch's flags of how exact products are: held by training and evaluation, read by answers.

The flags belong to the process. While a flag is set, no other thread may compute by it unasked, and
afterwards it must be as the application had chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from threading import Condition, Lock, get_ident
from typing import Any

import torch

EXACT = "ieee"
UNSET = "none"
"""What PyTorch calls the flag of an application that has chosen nothing: exact as well."""


class SharedFlag:
    """A flag that has one value at a time: threads that want the same one share it, others wait.

    First come, first served, so that nobody waits for ever. A thread holds it once at a time.
    """

    def __init__(self, backend: Any, name: str, where: str) -> None:
        self.where = where
        self._backend = backend
        self._name = name
        self._turn = Lock()
        self._changed = Condition()
        self._holders: Counter[int] = Counter()
        self._in_force: object = None
        self._application: object = None

    @contextmanager
    def held(self, wanted: object = None) -> Iterator[object]:
        """Within, the flag is ``wanted``, or as the application has it (None); yields its value."""
        assert get_ident() not in self._holders, f"{self.where} is held by this thread already"
        # A thread that waits keeps the turn: none that comes later overtakes it.
        with self._turn, self._changed:
            self._changed.wait_for(
                lambda: (
                    not self._holders
                    or _same(self._application if wanted is None else wanted, self._in_force)
                )
            )
            if not self._holders:
                self._application = self._in_force = self._read()
                if not _same(wanted, self._application):
                    self._write(wanted)
                    self._in_force = wanted
            self._holders[get_ident()] += 1
        try:
            yield self._in_force
        finally:
            with self._changed:
                del self._holders[get_ident()]
                if not self._holders:
                    if self._in_force != self._application:
                        self._write(self._application)
                    self._changed.notify_all()

    def _read(self) -> object:
        return getattr(self._backend, self._name)

    def _write(self, value: object) -> None:
        setattr(self._backend, self._name, value)


def _same(wanted: object, found: object) -> bool:
    return wanted is None or wanted == found or {wanted, found} == {EXACT, UNSET}


_FLOAT32 = {
    kind: SharedFlag(backend, "fp32_precision", f"torch.backends.{name}.matmul.fp32_precision")
    for kind, backend, name in (
        ("cuda", torch.backends.cuda.matmul, "cuda"),
        ("cpu", torch.backends.mkldnn.matmul, "mkldnn"),  # type: ignore[attr-defined]
    )
}
_ROUGH_SUMS = [
    SharedFlag(torch.backends.cuda.matmul, name, f"torch.backends.cuda.matmul.{name}")
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
    flag = _FLOAT32.get(device.type)
    with nullcontext() if flag is None else flag.held(precision):
        yield


@contextmanager
def exact_half_sums(device: torch.device) -> Iterator[None]:
    """Within, products of half precision add up in float32; so they do on a CPU anyway."""
    with ExitStack() as stack:
        for flag in _ROUGH_SUMS if device.type == "cuda" else ():
            stack.enter_context(flag.held(False))
        yield


@contextmanager
def products_as_set(device: torch.device) -> Iterator[str | None]:
    """Within, float32 products are computed as the application has set, whatever trains beside.

    Yields a note for the user where that lowers their precision, else None.
    """
    flag = _FLOAT32.get(device.type)
    if flag is None:
        yield None
        return
    with flag.held() as precision:
        lowered = f"scores are rounded to {precision}, as {flag.where} allows"
        yield None if precision in (EXACT, UNSET) else lowered

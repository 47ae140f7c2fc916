"""Errors of requests for memory that do not fit or were refused."""

from __future__ import annotations

import errno

from foretaste._util.formatting import memory
from foretaste.errors import UnsupportedError

_SIGNS_OF_REFUSAL = (
    *("can't allocate memory", "not enough memory", "out of memory", "bad_alloc"),
    *("bad allocation", "can't start new thread", "launch worker thread", "failed to map segment"),
)
"""Texts in errors of PyTorch, DuckDB, the C++ library, Python, Arrow and the linker."""


def require_memory(needed: float, free: float, what: str, advice: str) -> None:
    """Raise UnsupportedError, with ``advice``, if ``what`` needs more bytes than are free."""
    if needed > free:
        raise UnsupportedError(
            f"{what} takes about {memory(needed)} of memory, and {memory(free)} are free; {advice}"
        )


def was_refused(error: BaseException) -> bool:
    """Return True for an error by which any library reports that the system refused memory."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return any(sign in str(error) for sign in _SIGNS_OF_REFUSAL)

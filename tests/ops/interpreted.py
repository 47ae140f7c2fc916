"""Makes Triton's interpreter quicker: a plugin for pytest with ``TRITON_INTERPRET=1``.

Each call of a kernel's function looks through all names of Triton's language for those to replace,
which took half of the time. They are the same each time.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from triton.language.core import is_builtin
from triton.runtime import interpreter


@cache
def _builtins(package: Any) -> list[str]:
    return [name for name, member in inspect.getmembers(package) if is_builtin(member)]


def _patch_builtin(package: Any, *given: Any) -> None:
    for name in _builtins(package):
        # A call inside another one finds the builtin already replaced.
        if is_builtin(member := getattr(package, name)):
            interpreter._patch_attr(package, name, member, *given)


interpreter._patch_builtin = _patch_builtin

"""Public names that cost nothing until they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that imports each name from its module when first asked for.

    ``module_of`` names modules relative to ``package``. A module must not be called like a name it
    hands out: once imported, it would take the name's place.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return __getattr__

"""Signatures of functions that take the keywords of a TypedDict, for help and completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ForwardRef, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def with_keywords_of(options: type, *owners: type) -> Callable[[Function], Function]:
    """Decorate a function that takes ``**options: Unpack[...]`` of the TypedDict ``options``.

    The signature that ``help()`` and notebooks show then has each keyword, with its type and the
    default of the first of its ``owners``, the request and its parts, that has such a field.
    """
    defaults: dict[str, object] = {}
    for owner in reversed(owners):
        defaults |= vars(owner)

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name],
                annotation=hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint,
            )
            for name, hint in options.__annotations__.items()
        ]
        shown = signature.replace(parameters=[*named, *keywords])
        setattr(function, "__signature__", shown)  # noqa: B010 (typeshed's functions have none)
        return function

    return decorate

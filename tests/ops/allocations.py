"""The largest tensor an operation makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestAllocation(TorchDispatchMode):
    """Records, inside the context, the bytes of the largest memory behind any operation's
    result."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*arguments, **(named or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.num_bytes = max(self.num_bytes, leaf.untyped_storage().nbytes())
        return result

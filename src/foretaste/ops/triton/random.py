"""Random words within kernels: bit for bit those of `foretaste.ops.random`."""

from __future__ import annotations

import triton.language as tl

from foretaste.ops.triton.support import kernel

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)


@kernel
def hash_words(key: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """As `foretaste.ops.random.hash_words`, of uint64."""
    return mix(counter * GOLDEN + key)


@kernel
def mix(word: tl.tensor) -> tl.tensor:
    """SplitMix64's finaliser on uint64."""
    word = (word ^ (word >> 30)) * _MIX_1
    word = (word ^ (word >> 27)) * _MIX_2
    return word ^ (word >> 31)

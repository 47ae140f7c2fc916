"""The interaction of grouped users with their candidates: NeuMF after its first projections.

`reference` is the definition, on any device; `chunked` the same in chunks that fit a cache, value
and gradients in one pass, which training and ranking use.
"""

from foretaste.ops.interaction.types import InteractionInputs, Samples, TowerDropout

__all__ = ["InteractionInputs", "Samples", "TowerDropout"]

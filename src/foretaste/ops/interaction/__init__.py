"""The interaction of grouped users with their candidates: NeuMF after its first projections.

`reference` is the definition, on any device; `chunked` the same in chunks that fit a cache, value
and gradients in one pass; `triton_loss` and `triton_logits` fused for CUDA. `dispatch`, which
models call, picks one.
"""

from foretaste.ops.interaction.types import InteractionInputs, Samples, TowerDropout

__all__ = ["InteractionInputs", "Samples", "TowerDropout"]

"""The multinomial log-likelihood of histories over the catalogue, the Mult-VAE's output layer.

`reference` is the definition; `chunked` never keeps the [users, items] logits; `sampled` is an
approximation that does not compute all of them.
"""

from foretaste.ops.multinomial.loss import loss
from foretaste.ops.multinomial.sampled import loss as sampled_loss

__all__ = ["loss", "sampled_loss"]

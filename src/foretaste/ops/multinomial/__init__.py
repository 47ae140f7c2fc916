"""The multinomial log-likelihood of histories over the catalogue, the Mult-VAE's output layer.

`reference` is the definition; `chunked` never keeps the [users, items] logits.
"""

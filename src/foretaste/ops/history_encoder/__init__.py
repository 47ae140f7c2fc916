"""The first layer of an autoencoder over histories, without their dense [users, items] rows.

`reference` is the definition; `bags` sums table rows straight from the histories.
"""

from foretaste.ops.history_encoder.encode import encode

__all__ = ["encode"]

"""The softmax over the catalogue, or over a sample of it: the loss of several families.

Shape suffixes: R rows, D width, I items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor

from foretaste.models.base import NeuralModel
from foretaste.models.parts import Shards
from foretaste.ops import softmax_loss
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import Purpose, stream_keys
from foretaste.ops.softmax_loss.sampled import sampled_loss


class _Batch(Protocol):
    @property
    def dropout_key(self) -> Tensor: ...

    @property
    def num_samples(self) -> int: ...

    @property
    def parts(self) -> Shards: ...


def catalogue_loss(
    model: NeuralModel,
    batch: _Batch,
    hidden_RD: Tensor,
    weight_ID: Tensor,
    bias_I: Tensor,
    targets: HistoryTensors,
) -> Tensor:
    """``-log softmax`` of the targets of each row, over the samples of the whole batch.

    In training, a model whose ``sampled_softmax`` is set takes that many sampled items in place of
    the catalogue.
    """
    likelihood: Callable[..., Tensor] = softmax_loss.loss
    if model.training and model.config.sampled_softmax is not None:
        likelihood = partial(
            sampled_loss,
            num_samples=model.config.sampled_softmax,
            key=stream_keys(batch.dropout_key, Purpose.NEGATIVES),
            all_items=partial(batch.parts.union, size=targets.num_items, at_most=targets.num_items),
        )
    return likelihood(
        hidden_RD,
        weight_ID,
        bias_I,
        targets,
        scale=1.0 / batch.num_samples,
        compute_dtype=model.compute_dtype if model.training else None,
        buffers=model._memory,
        implementation=model.implementation,
    )

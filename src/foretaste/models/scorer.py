"""Scores of the catalogue in plain operations on tensors: the part of a model that is exported.

Shape suffixes: B users, I items of the catalogue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import Tensor, nn

_NUMBERS_OF_CHUNK = 1 << 18
"""Numbers of a chunk of the catalogue for each user: a megabyte in float32."""

_MOST_CHUNKS = 64
"""Each chunk is written out in an exported program, which grows with them."""


class Scorer(nn.Module, ABC):
    """A module that `torch.export` can trace for any number of users.

    Its buffers and parameters are all that the scores need. They may be the model's own.
    """

    @abstractmethod
    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        """Scores [B, I], float32; of a user without a history they mean nothing.

        Args:
            known_BI: the histories, float32 zeros and ones. Of a model that uses the order, the
                place of an item from the end in place of one: 1 is the newest.
            user_index_B: int64 for a scorer of known users, None for one of any history.
        """


def item_chunks(num_items: int, numbers_each: int) -> Iterator[slice]:
    """Chunks of consecutive items, of up to a megabyte a user at ``numbers_each`` an item.

    A catalogue of more than 64 such chunks is cut into 64 larger ones.
    """
    at_once = max(1, _NUMBERS_OF_CHUNK // max(1, numbers_each), -(-num_items // _MOST_CHUNKS))
    for start in range(0, num_items, at_once):
        yield slice(start, min(start + at_once, num_items))

"""Settings of SASRec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from foretaste._util.settings import Count, Range, setting_error
from foretaste.models.config import Auto, Between, Dropout, FeatureConfig, Setting

LONG_HISTORIES = 60.0
"""Mean number of items of a user from which histories count as long."""

MANY_ITEMS = 6_000
"""Items of a catalogue that are sampled in training unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class SASRecConfig(FeatureConfig):
    """SASRec: a transformer that reads a history in order and says what comes next.

    Kang & McAuley 2018, arXiv 1808.09781, with the softmax over the catalogue. It needs the order
    of interactions, and takes minutes where slist takes seconds.
    """

    uses_order = True
    parallel = "data"
    architecture = ("factors", "blocks", "heads", "max_length", "feature_weight")
    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "learning_rate": Between(3e-4, 5e-3, log=True),
        "dropout": Between(0.1, 0.7),
        "blocks": (1, 2, 3),
    }

    factors: Annotated[int | Auto, Range(at_least=1)] = "auto"
    """Width of the item vectors and of every layer, a multiple of heads. auto is 64, or 96 if users
    have 60 items or more on average."""

    blocks: Count = 2
    """Transformer blocks, each of an attention and a feed-forward layer."""

    heads: Count = 2
    """Parts of the width that attend on their own."""

    max_length: Annotated[int | Auto, Range(at_least=1, at_most=10_000)] = "auto"
    """Newest items of a history that the model reads; training cuts longer histories into windows.
    auto is 50, or 200 if users have 60 items or more on average."""

    dropout: Dropout | Auto = "auto"
    """Share of the numbers dropped in training behind the embeddings and each layer. auto is 0.5,
    or 0.2 if users have 60 items or more on average."""

    sampled_softmax: Annotated[int | Auto | None, Range(at_least=1)] = "auto"
    """Approximation for large catalogues: train on this many sampled items, beside the targets of
    the batch, instead of all items; none trains on all. auto is 1,024, or none for up to 6,000
    items."""

    feature_weight: Annotated[float, Range(at_least=0)] | Auto = "auto"
    """Weight of the mean vector of an item's feature values beside the item's own vector: the
    higher, the more items of one category or brand stand together. 0 learns from no features. auto
    is 1."""

    @property
    def keeps_features(self) -> bool:  # type: ignore[override]
        return self.uses_features

    def resolved(self, num_items: int, items_per_user: float = 0.0) -> Self:
        is_long = items_per_user >= LONG_HISTORIES
        width = 96 if is_long else 64
        rule: dict[str, Setting] = {
            "factors": -(-width // self.heads) * self.heads,
            "max_length": 200 if is_long else 50,
            "dropout": 0.2 if is_long else 0.5,
            "sampled_softmax": 1024 if num_items > MANY_ITEMS else None,
            "feature_weight": 1.0,
        }
        return self._by_rule(rule)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.factors != "auto" and self.factors % self.heads:
            raise setting_error(
                "factors", self.factors, f"a multiple of heads, which is {self.heads}"
            )

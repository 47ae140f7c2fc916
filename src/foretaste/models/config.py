"""Settings that models share, and the facts about a model that help and options need.

This module does not import torch, because that takes a second, and ``--help`` would wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

from foretaste._util.settings import Range, check_settings

Widths = Annotated[tuple[int, ...], Range(at_least=1)]
Dropout = Annotated[float, Range(at_least=0, below=1)]
Auto = Literal["auto"]
Sharing = Literal["users", "data"]
"""Ways to share a training out over ranks. users: each rank has some users and their rows of the
tables. data: each has a part of every batch and the whole model."""


@dataclass(frozen=True)
class Between:
    """Range of a setting to search, both ends included; of whole numbers if both ends are."""

    low: float
    high: float
    log: bool = False
    """Search by factors and not by differences: 0.01 to 0.1 is as far as 0.1 to 1."""
    only: str | None = None
    """A setting or property of the model; the range is searched only if it is true."""


Setting = float | str | bool | tuple[int, ...] | None
"""The value of a setting."""

SearchSpace = dict[str, Between | tuple[Setting, ...]]
"""Settings to search, by name: their ranges or their choices."""

Candidates = list[tuple[str, float | tuple[Setting, ...]]]
"""Settings that ``auto`` chooses, in this order. A tuple has the values to try; a number is the
factor from one value to the next."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Settings of a model. The docstring of each is the model's help; the first line is short."""

    has_epochs: ClassVar[bool] = True
    """Whether the model is fitted epoch by epoch, by gradient steps or sweeps; otherwise in one
    pass."""

    has_steps: ClassVar[bool] = True
    """Whether epochs are made of gradient steps; otherwise each epoch is a sweep over the data."""

    uses_order: ClassVar[bool] = False
    """Whether the model reads the order of a history: only then do its histories have positions."""

    uses_features: ClassVar[bool] = False
    """Whether the model learns from the features of items, and lists new items that have
    features."""

    keeps_features: ClassVar[bool] = False
    """Whether answers read the features again, so that runs keep them."""

    feature_candidates: ClassVar[dict[str, tuple[float, ...]]] = {}
    """Values tried on the validation part, in all combinations, for each setting of features that
    is ``auto``. Without a validation part, the rule takes the first value of each."""

    samples_negatives: ClassVar[bool] = False
    """Whether the model learns from sampled negatives."""

    has_large_products: ClassVar[bool] = True
    """Whether the precision of training changes anything."""

    parallel: ClassVar[Sharing | None] = None
    """How ranks share the training: by users, or by data, which is the users of each batch; with
    None the first rank trains alone."""

    architecture: ClassVar[tuple[str, ...]] = ()
    """Settings that the weights depend on, such as sizes; a warm start needs the same values."""

    pretrained_parts: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Models whose runs can give this model its first weights; for each, the beginnings of the
    names of the parameters taken from the run."""

    search_space: ClassVar[SearchSpace] = {}
    """Settings worth a search, of the model, its negatives or its training."""

    has_candidates: ClassVar[bool] = False
    """Whether fits on the validation part choose some settings that are ``auto``."""

    counted_in_users: ClassVar[tuple[str, ...]] = ()
    """Settings in numbers of users or interactions: on a share of the users, this share of each
    does the same."""

    @property
    def takes_weights(self) -> bool:
        """Whether the model learns from the weights of interactions, not only from the pairs."""
        return not getattr(self, "ignore_weights", True)

    @property
    def scoring(self) -> dict[str, bool]:
        """Settings that change what the weights mean: a warm start needs the same."""
        return {}

    @property
    def resolved_settings(self) -> dict[str, Setting]:
        """The values of those settings that follow other settings unless they are given."""
        return {}

    def resolved(self, num_items: int, items_per_user: float = 0.0) -> Self:
        """Return the settings with a value for each ``auto`` that depends on either argument."""
        return self

    def _by_rule(self, rule: Mapping[str, Setting]) -> Self:
        """Return the same settings, with the values of ``rule`` in the place of ``auto``."""
        chosen = {name: value for name, value in rule.items() if getattr(self, name) == "auto"}
        return replace(self, **chosen)

    def without_features(self) -> Self:
        """Return the same settings for data that have no features."""
        return self

    def num_listed(self, num_items: int, num_listed_items: int) -> int:
        """Return the number of items listed: training's or, with features, all of the dataset's."""
        return num_listed_items if self.uses_features else num_items

    def candidates(self) -> Candidates:
        """Return the values of each ``auto`` that are tried on the validation part. The search
        begins at the values of this `resolved` config."""
        return []

    def __post_init__(self) -> None:
        check_settings(self)


class FeatureConfig(ModelConfig):
    """Settings of a model that learns from the features of items.

    Each model has the field for itself, because its values differ.
    """

    feature_weight: float | Auto

    @property
    def uses_features(self) -> bool:  # type: ignore[override]
        return self.feature_weight != 0

    def without_features(self) -> Self:
        without: dict[str, Setting] = {"feature_weight": 0.0}
        return replace(self, **without)

    def resolved(self, num_items: int, items_per_user: float = 0.0) -> Self:
        chosen = self._by_rule({name: one[0] for name, one in self.feature_candidates.items()})
        return super(FeatureConfig, chosen).resolved(num_items, items_per_user)


@dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """Size of the training data and, if asked for, of a batch: ``auto`` settings depend on both."""

    num_interactions: int
    num_users: int
    num_items: int
    protocol: str
    batch_size: int | None = None
    constant_rate: bool = False
    """True if a constant learning rate is asked for."""

"""Settings of NeuMF and of its two halves, GMF and the MLP alone (He et al. 2017).

Annotations are evaluated here: the benchmarks inherit from these settings in another module, which
does not have their names.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from foretaste._util.settings import Count, Range, setting_error
from foretaste.errors import SettingError
from foretaste.models.config import (
    Auto,
    Between,
    Dropout,
    ModelConfig,
    SearchSpace,
    Setting,
    Widths,
)

BatchLayout = Literal["grouped", "shuffled"]

_STEPS: SearchSpace = {
    "learning_rate": Between(1e-4, 1e-2, log=True),
    "negatives": Between(2, 128, log=True),
    "loss": ("bce", "softmax"),
}
_WIDTHS: SearchSpace = {"factors": Between(8, 128, log=True)}
_TOWERS: SearchSpace = {
    "layers": ((64, 32, 16), (128, 64, 32), (256, 128, 64), (256, 256, 128, 64)),
    "dropout": Between(0.0, 0.7),
}

_SCORES: SearchSpace = {
    "learning_rate": Between(1e-4, 5e-2, log=True),
    "negatives": Between(2, 128, log=True),
    "factors": Between(8, 256, log=True),
    "temperature": Between(0.05, 0.5, log=True, only="is_softmax"),
    "logit_adjustment": Between(0.0, 0.8, only="is_softmax"),
}

_TEMPERATURE = 0.15

_PRIOR_OF_COSINES = 0.03
"""Weight of the prior for cosines, whose rows deviate a tenth as much from their mean."""


@dataclass(frozen=True, kw_only=True)
class NegativesConfig(ModelConfig):
    """Settings of a model that tells interactions from sampled negatives."""

    # First among the bases, so that its settings come last.
    samples_negatives = True
    parallel = "users"

    loss: Literal["bce", "softmax"] = "bce"
    """bce: binary cross-entropy of every sample. softmax: cross-entropy of an interaction among its
    negatives, which should be many."""

    logit_adjustment: Annotated[float, Range(at_least=0)] = 0.0
    """Weight of the logarithm of popularity, added to scores within the loss softmax alone: lists
    lean away from popular items (Menon et al. 2021, arXiv 2007.07314)."""

    prior_weight: Annotated[float | None, Range(above=0)] = None
    """Weight of the prior in the fit of new users. Unless given it is 0.03 for cosines, else 1, and
    the validation part may choose another."""

    negatives: Annotated[int | Auto, Range(at_least=1)] = "auto"
    """Items sampled per interaction. auto is 4 for bce; for softmax it is an eighth of the items,
    but 4 to 64."""

    verified_negatives: bool = True
    """Check that sampled items are not among the user's own; False is the reference's shortcut."""

    batch_layout: BatchLayout = "grouped"
    """`grouped`: an interaction stays with its negatives in one batch, which is faster;
    `shuffled`: every sample is drawn on its own."""

    @property
    def is_softmax(self) -> bool:
        """True if the loss is softmax."""
        return self.loss == "softmax"

    @property
    def scores_cosines(self) -> bool:
        """True if scores are cosines, divided by the temperature."""
        return False

    @property
    def divisor(self) -> float:
        """The temperature if scores are cosines, else 1."""
        return 1.0

    @property
    def resolved_prior_weight(self) -> float:
        """``prior_weight`` before the validation part chooses; unless given, by the scores."""
        if self.prior_weight is not None:
            return self.prior_weight
        return _PRIOR_OF_COSINES if self.scores_cosines else 1.0

    @property
    def scoring(self) -> dict[str, bool]:
        return {"cosine": self.scores_cosines}

    @property
    def num_negatives(self) -> int:
        """``negatives`` once they are a number, as `resolved` makes them."""
        assert isinstance(self.negatives, int)
        return self.negatives

    def resolved(self, num_items: int, items_per_user: float = 0.0) -> Self:
        if self.negatives != "auto":
            return self
        # Softmax compares an interaction with its negatives, and wants many of them.
        number = min(64, max(4, num_items // 8)) if self.is_softmax else 4
        return replace(self, negatives=number)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logit_adjustment and not self.is_softmax:
            raise SettingError(
                f"logit_adjustment is {self.logit_adjustment}, which only the loss softmax has, "
                f"and loss is {self.loss}; leave it out (--logit-adjustment 0, if --from has "
                "it), or use --loss softmax"
            )
        if self.is_softmax and self.batch_layout == "shuffled":
            raise SettingError(
                "loss is softmax, which compares an interaction with its negatives, and "
                "batch_layout is shuffled, which parts them; use grouped or the loss bce"
            )


@dataclass(frozen=True, kw_only=True)
class _Factors(ModelConfig):
    factors: Count = 64
    """Width of the element-wise half's user and item factors."""


@dataclass(frozen=True, kw_only=True)
class _Tower(ModelConfig):
    layers: Widths = (256, 256, 128, 64)
    """Width of the tower's input (user and item embeddings, half each), then of each layer."""

    # NVIDIA's value; its own code never applied it, because the layers ran with `training=False`.
    dropout: Dropout = 0.5
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.layers) < 2 or self.layers[0] % 2:
            raise setting_error(
                "layers",
                self.layers,
                "the width of the tower's input (even: half for users, half for items), then of "
                "each layer: 256 256 128 64",
            )


@dataclass(frozen=True, kw_only=True)
class GMFConfig(NegativesConfig, _Factors):
    """GMF: a matrix factorisation by gradient steps, scored by cosines.

    Wu et al. 2022, arXiv 2201.02327. `--loss bce` makes it NeuMF's half: He et al. 2017, arXiv
    1708.05031.
    """

    has_large_products = False
    architecture = ("factors",)
    search_space = _SCORES

    loss: Literal["softmax", "bce"] = "softmax"
    """softmax: cross-entropy of an interaction among its negatives, which should be many, by
    cosines. bce: binary cross-entropy of every sample, by a learned product, as in NeuMF."""

    temperature: Annotated[float | None, Range(above=0)] = None
    """Divisor of the cosines of softmax; 0.15 unless given."""

    @property
    def scores_cosines(self) -> bool:
        return self.is_softmax

    @property
    def divisor(self) -> float:
        return (self.temperature or _TEMPERATURE) if self.scores_cosines else 1.0

    @property
    def resolved_settings(self) -> dict[str, Setting]:
        return {"temperature": self.divisor if self.scores_cosines else None}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and not self.scores_cosines:
            raise SettingError(
                f"temperature is {self.temperature}, which only the cosines of softmax are divided "
                f"by, and loss is {self.loss}; leave it out (--temperature none, if --from has "
                "it), or use --loss softmax"
            )


@dataclass(frozen=True, kw_only=True)
class MLPConfig(NegativesConfig, _Tower):
    """MLP: the tower of NeuMF alone.

    He et al. 2017, arXiv 1708.05031.
    """

    architecture = ("layers",)

    dropout: Dropout = 0.0
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    search_space = {**_STEPS, **_TOWERS}  # noqa: RUF012 (a ClassVar of the parent)


# It has the settings of both halves and inherits from neither: it is no GMFConfig.
@dataclass(frozen=True, kw_only=True)
class NeuMFConfig(NegativesConfig, _Tower, _Factors):
    """NeuMF: a matrix factorisation and a multilayer tower, joined.

    He et al. 2017, arXiv 1708.05031. The widths are NVIDIA's, made for a GPU; on a few cores
    `--factors 32 --layers 128 64 32` learns several times as fast.
    """

    architecture = ("factors", "layers")
    search_space = {**_STEPS, **_WIDTHS, **_TOWERS}  # noqa: RUF012 (a ClassVar of the parent)
    pretrained_parts = {  # noqa: RUF012 (a ClassVar of the parent)
        "gmf": ("user_factors", "item_factors"),
        "mlp": ("user_embedding", "item_embedding", "tower."),
    }

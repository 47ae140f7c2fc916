"""Settings of NeuMF and of its two halves, GMF and the MLP alone (He et al. 2017).

Annotations are evaluated here: the benchmarks inherit from these settings in another module, which
does not have their names.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from foretaste._util.settings import Count, Range, wrong
from foretaste.errors import SettingError
from foretaste.models.config import (
    Between,
    Dropout,
    ModelConfig,
    SamplingConfig,
    SearchSpace,
    Widths,
)

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

# Cosines follow unless given: softmax has them, and bce, the dot product and biases have none. The
# other loss, ccl, wants more negatives than are searched.
_SCORES: SearchSpace = {
    "learning_rate": Between(1e-4, 5e-2, log=True),
    "learning_rate_schedule": ("constant", "cosine"),
    "negatives": Between(2, 128, log=True),
    "factors": Between(8, 256, log=True),
    "loss": ("softmax", "bce"),
    "dot_product": (False, True),
    "biases": (False, True),
    "l2_rows": Between(1e-4, 2e-2, log=True, only="dot_product"),
    "temperature": Between(0.05, 0.5, log=True, only="has_temperature"),
    "logit_adjustment": Between(0.0, 0.8, only="is_softmax"),
}

_MARGIN = 0.4
_NEGATIVE_WEIGHT = 150.0
_TEMPERATURE = 0.15

_PRIOR_OF_COSINES = 0.03
"""Weight of the prior for cosines in bce and softmax: docs/results.md has what others give."""

_SLOPES_OF_CCL = 151.0
"""``1 + negative_weight`` at which a ccl loss is weighed against the prior like a log-likelihood;
the prior's weight grows in proportion. Found by what refitted rows keep."""


@dataclass(frozen=True, kw_only=True)
class _FromNegatives(ModelConfig):
    # First among the bases, so that its settings come last.
    samples_negatives = True
    parallel = ("users",)

    loss: Literal["bce", "softmax"] = "bce"
    """bce: binary cross-entropy of every sample. softmax: cross-entropy of an interaction among its
    negatives, which are to be many."""

    biases: bool = False
    """Add a learned number of the user and one of the item to every score."""

    l2_rows: Annotated[float, Range(at_least=0)] = 0.0
    """Weight of half the squared norm of each sample's user and item rows; rows that a batch does
    not have are left alone."""

    embedding_dropout: Dropout = 0.0
    """Share of user vectors' numbers dropped in training, in steps of 1/256."""

    logit_adjustment: Annotated[float, Range(at_least=0)] = 0.0
    """Weight of the logarithm of popularity, added to scores within the loss softmax alone: lists
    lean away from popular items (Menon et al. 2021, arXiv 2007.07314)."""

    prior_weight: Annotated[float | None, Range(above=0)] = None
    """Weight of the prior that new users are fitted with. Unless given it goes by the loss, and the
    validation part may choose another."""

    @property
    def resolved_loss(self) -> str:
        """The loss by name, never ``auto``."""
        return self.loss

    @property
    def is_softmax(self) -> bool:
        """True where the loss is softmax."""
        return self.resolved_loss == "softmax"

    @property
    def scores_cosines(self) -> bool:
        """True where scores are cosines, by choice or by the loss."""
        return False

    @property
    def has_unit_output(self) -> bool:
        """True where the output weights are one and are not learned."""
        return self.scores_cosines

    @property
    def divisor(self) -> float:
        """Divisor of scores."""
        return 1.0

    @property
    def resolved_prior_weight(self) -> float:
        """The weight of the prior in training; that of its loss and scores unless given."""
        return self.prior_weight_by_loss if self.prior_weight is None else self.prior_weight

    @property
    def prior_weight_by_loss(self) -> float:
        """The weight of the prior where none is given: that of a log-likelihood, one."""
        return 1.0

    @property
    def objective(self) -> dict[str, Any]:
        """The loss by name, with its settings."""
        return {"name": self.resolved_loss}

    @property
    def scoring(self) -> dict[str, bool]:
        return {"cosine": self.scores_cosines, "biases": self.biases}

    def auto_negatives(self, num_items: int) -> int:
        return 4 if self.resolved_loss == "bce" else min(64, max(4, num_items // 8))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logit_adjustment and not self.is_softmax:
            raise SettingError(
                f"logit_adjustment is {self.logit_adjustment}, which only the loss softmax has, "
                f"and loss is {self.resolved_loss}; leave it out (--logit-adjustment 0, where "
                "--from has it), or use --loss softmax"
            )

    def check_sampling(self, sampling: SamplingConfig) -> None:
        if self.resolved_loss != "bce" and sampling.batch_layout == "shuffled":
            raise SettingError(
                f"loss is {self.resolved_loss}, which compares an interaction with its negatives, "
                "and batch_layout is shuffled, which parts them; use grouped or the loss bce"
            )


@dataclass(frozen=True, kw_only=True)
class _Factors(ModelConfig):
    factors: Count = 64
    """Width of the element-wise half's user and item factors."""


@dataclass(frozen=True, kw_only=True)
class _Tower(ModelConfig):
    layers: Widths = (256, 256, 128, 64)
    """Width of the tower's input (user and item embeddings, half each), then of each layer."""

    dropout: Dropout = 0.5
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.layers) < 2 or self.layers[0] % 2:
            raise wrong(
                "layers",
                self.layers,
                "the width of the tower's input (even: half for users, half for items), then of "
                "each layer: 256 256 128 64",
            )


@dataclass(frozen=True, kw_only=True)
class GMFConfig(_FromNegatives, _Factors):
    """A matrix factorisation, scored by cosines; with bce the factorisation half of NeuMF."""

    has_large_products = False
    search_space = _SCORES

    loss: Literal["auto", "bce", "softmax", "ccl"] = "auto"  # type: ignore[assignment]
    """softmax: cross-entropy of an interaction among its negatives, which are to be many. bce:
    binary cross-entropy of every sample. ccl: cosine contrastive loss, for hundreds of negatives
    (Mao et al. 2021, arXiv 2109.12613). auto: bce with dot_product or biases, else softmax."""

    margin: Annotated[float | None, Range(at_least=-1, at_most=1)] = None
    """Cosine up to which ccl lets a negative be; 0.4 unless given."""

    negative_weight: Annotated[float | None, Range(above=0)] = None
    """Weight of the mean over an interaction's negatives in ccl; 150 unless given."""

    dot_product: bool = False
    """Score by the plain dot product of the factors; output weights are one, so that l2_rows holds
    scores back and not only factors (Rendle et al. 2020, arXiv 2005.09683)."""

    cosine: bool | None = None
    """Score by the cosine of the factors, divided by the temperature; output weights are one. ccl
    implies it; unless given, softmax has it too where there is no dot_product and no biases."""

    temperature: Annotated[float | None, Range(above=0)] = None
    """Divisor of cosine scores in bce and softmax; 0.15 unless given."""

    @property
    def resolved_loss(self) -> str:
        if self.loss != "auto":
            return self.loss
        return "bce" if self.dot_product or self.biases else "softmax"

    @property
    def scores_cosines(self) -> bool:
        if self.cosine is None and self.is_softmax:
            return not (self.dot_product or self.biases)
        return bool(self.cosine) or self.loss == "ccl"

    @property
    def has_temperature(self) -> bool:
        """True where scores are divided by the temperature."""
        return self.scores_cosines and self.loss != "ccl"

    @property
    def has_unit_output(self) -> bool:
        return self.dot_product or self.scores_cosines

    @property
    def divisor(self) -> float:
        return (self.temperature or _TEMPERATURE) if self.has_temperature else 1.0

    @property
    def prior_weight_by_loss(self) -> float:
        if self.loss == "ccl":
            return float((1.0 + self.objective["negative_weight"]) / _SLOPES_OF_CCL)
        return _PRIOR_OF_COSINES if self.scores_cosines else 1.0

    @property
    def resolved_settings(self) -> dict[str, Any]:
        return {
            "loss": self.resolved_loss,
            "cosine": self.scores_cosines,
            "temperature": self.divisor if self.has_temperature else None,
            "margin": self.objective.get("margin"),
            "negative_weight": self.objective.get("negative_weight"),
        }

    @property
    def scoring(self) -> dict[str, bool]:
        return {**super().scoring, "dot_product": self.dot_product}

    @property
    def objective(self) -> dict[str, Any]:
        if self.loss != "ccl":
            return super().objective
        margin = _MARGIN if self.margin is None else self.margin
        weight = self.negative_weight or _NEGATIVE_WEIGHT
        return {"name": self.loss, "margin": margin, "negative_weight": weight}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss != "ccl":
            for name in ("margin", "negative_weight"):
                if (value := getattr(self, name)) is not None:
                    raise SettingError(
                        f"{name} is {value}, which only the loss ccl has, and loss is "
                        f"{self.resolved_loss}; leave it out (--{name.replace('_', '-')} none, "
                        "where --from has it), or use --loss ccl"
                    )
        elif self.cosine is False:
            raise SettingError(
                "cosine is off, and the loss ccl is one of cosines; leave out --no-cosine "
                "(or --from of a run that has it), or use another loss"
            )
        if self.temperature is not None and not self.has_temperature:
            raise SettingError(
                f"temperature is {self.temperature}, and only cosine scores by the loss bce or "
                "softmax are divided by one; leave it out (--temperature none, where --from has "
                "it), or use --cosine with --loss bce or softmax, without --dot-product and "
                "--biases"
            )
        if self.dot_product and self.scores_cosines:
            raise SettingError(
                "dot_product is on, and scores are cosines, by --cosine or the loss ccl; leave out "
                "one of them"
            )
        if self.biases and self.scores_cosines:
            raise SettingError(
                "biases are on, and cosine scores have none; leave out --biases, or --cosine and "
                "the loss ccl"
            )


@dataclass(frozen=True, kw_only=True)
class MLPConfig(_FromNegatives, _Tower):
    """The tower half of NeuMF alone."""

    dropout: Dropout = 0.0
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    search_space = {**_STEPS, **_TOWERS}  # noqa: RUF012 (a ClassVar of the parent)


# The settings of both halves, but none of them: a NeuMFConfig is no GMFConfig.
@dataclass(frozen=True, kw_only=True)
class NeuMFConfig(_FromNegatives, _Tower, _Factors):
    """NeuMF: a matrix factorisation and a multilayer tower, joined.

    He et al. 2017, arXiv 1708.05031. The widths are NVIDIA's, made for a GPU; on a few cores
    `--factors 32 --layers 128 64 32` learns several times as fast.
    """

    search_space = {**_STEPS, **_WIDTHS, **_TOWERS}  # noqa: RUF012 (a ClassVar of the parent)
    pretrained_parts = {  # noqa: RUF012 (a ClassVar of the parent)
        "gmf": ("user_factors", "item_factors", "user_bias", "item_bias"),
        "mlp": ("user_embedding", "item_embedding", "tower."),
    }

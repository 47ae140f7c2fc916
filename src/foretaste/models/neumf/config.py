"""Settings of NeuMF and of its two halves, GMF and the MLP alone (He et al. 2017).

Annotations are evaluated here: the benchmarks inherit from these settings in another module, which
does not have their names.
"""

from dataclasses import dataclass

from foretaste._util.settings import Count, wrong
from foretaste.models.config import Between, Dropout, ModelConfig, SearchSpace, Widths

_STEPS: SearchSpace = {
    "learning_rate": Between(3e-4, 1e-2, log=True),
    "negatives": Between(2, 16, log=True),
}
_WIDTHS: SearchSpace = {"factors": Between(8, 128, log=True)}
_TOWERS: SearchSpace = {
    "layers": ((64, 32, 16), (128, 64, 32), (256, 128, 64), (256, 256, 128, 64)),
    "dropout": Between(0.0, 0.7),
}


@dataclass(frozen=True, kw_only=True)
class _Factors(ModelConfig):
    samples_negatives = True
    parallel = ("users",)

    factors: Count = 64
    """Width of the element-wise half's user and item factors."""


@dataclass(frozen=True, kw_only=True)
class _Tower(ModelConfig):
    samples_negatives = True
    parallel = ("users",)

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
class GMFConfig(_Factors):
    """The factorisation half of NeuMF alone."""

    has_large_products = False
    search_space = {**_STEPS, **_WIDTHS}  # noqa: RUF012 (a ClassVar of the parent)


@dataclass(frozen=True, kw_only=True)
class MLPConfig(_Tower):
    """The tower half of NeuMF alone."""

    search_space = {**_STEPS, **_TOWERS}  # noqa: RUF012 (a ClassVar of the parent)


# The settings of both halves, but none of them: a NeuMFConfig is no GMFConfig.
@dataclass(frozen=True, kw_only=True)
class NeuMFConfig(_Tower, _Factors):
    """NeuMF: a matrix factorisation and a multilayer tower, joined.

    He et al. 2017, arXiv 1708.05031. The widths are NVIDIA's, made for a GPU; on a few cores
    `--factors 32 --layers 128 64 32` learns several times as fast.
    """

    search_space = {**_STEPS, **_WIDTHS, **_TOWERS}  # noqa: RUF012 (a ClassVar of the parent)
    pretrained_parts = {  # noqa: RUF012 (a ClassVar of the parent)
        "gmf": ("user_factors", "item_factors"),
        "mlp": ("user_embedding", "item_embedding", "tower."),
    }

"""Settings of NeuMF and of its two halves, GMF and the MLP alone (He et al. 2017).

Annotations are evaluated here: the benchmarks inherit from these settings in another module, which
does not have their names.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range, check_settings, wrong

BatchLayout = Literal["grouped", "shuffled"]
Widths = Annotated[tuple[int, ...], Range(at_least=1)]
Dropout = Annotated[float, Range(at_least=0, below=1)]


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How NeuMF, GMF and MLP see what users did *not* touch."""

    negatives: Count = 4
    """Items sampled per interaction that the user has not interacted with."""

    verified_negatives: bool = True
    """Check that sampled items are not among the user's own; False is the reference's shortcut."""

    batch_layout: BatchLayout = "grouped"
    """`grouped`: an interaction stays with its negatives in one batch, which is faster;
    `shuffled`: every sample is drawn on its own."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class GMFConfig:
    """Generalised matrix factorisation: the element-wise half of NeuMF."""

    factors: Count = 64
    """Width of the user and item factors."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """The tower half of NeuMF."""

    layers: Widths = (256, 256, 128, 64)
    """Width of the tower's input (user and item embeddings, half each), then of each layer."""

    dropout: Dropout = 0.5
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    def __post_init__(self) -> None:
        check_settings(self)
        _check_tower(self.layers)


@dataclass(frozen=True, kw_only=True)
class NeuMFConfig:
    """NeuMF: GMF and an MLP tower joined by one linear layer. Defaults are NVIDIA's."""

    factors: Count = 64
    """Width of the element-wise half's user and item factors."""

    layers: Widths = (256, 256, 128, 64)
    """Width of the tower's input (user and item embeddings, half each), then of each layer."""

    dropout: Dropout = 0.5
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    def __post_init__(self) -> None:
        check_settings(self)
        _check_tower(self.layers)


def _check_tower(layers: tuple[int, ...]) -> None:
    if len(layers) < 2 or layers[0] % 2:
        raise wrong(
            "layers",
            layers,
            "the width of the tower's input (even: half for users, half for items), then of each "
            "layer: 256 256 128 64",
        )

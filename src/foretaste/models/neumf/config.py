"""Settings of NeuMF and of its two halves, GMF and the MLP alone (He et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from foretaste._util.checks import check_choice, check_number, check_sequence, check_whole
from foretaste.errors import SettingError

BatchLayout = Literal["grouped", "shuffled"]


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How NeuMF, GMF and MLP see what users did *not* touch."""

    negatives: int = 4
    """Items sampled per interaction that the user has not interacted with."""

    verified_negatives: bool = True
    """Check that sampled items are not among the user's own; False is the reference's shortcut."""

    batch_layout: BatchLayout = "grouped"
    """`grouped`: an interaction stays with its negatives in one batch, which is faster;
    `shuffled`: every sample is drawn on its own."""

    def __post_init__(self) -> None:
        check_whole("negatives", self.negatives, at_least=1)
        check_choice("batch_layout", self.batch_layout, get_args(BatchLayout))


@dataclass(frozen=True, kw_only=True)
class GMFConfig:
    """Generalised matrix factorisation: the element-wise half of NeuMF."""

    factors: int = 64
    """Width of the user and item factors."""

    def __post_init__(self) -> None:
        check_whole("factors", self.factors, at_least=1)


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """The tower half of NeuMF."""

    layers: tuple[int, ...] = (256, 256, 128, 64)
    """Width of the tower's input (user and item embeddings, half each), then of each layer."""

    dropout: float = 0.5
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    def __post_init__(self) -> None:
        _check_tower(self.layers, self.dropout)


@dataclass(frozen=True, kw_only=True)
class NeuMFConfig:
    """NeuMF: GMF and an MLP tower joined by one linear layer. Defaults are NVIDIA's."""

    factors: int = 64
    """Width of the element-wise half's user and item factors."""

    layers: tuple[int, ...] = (256, 256, 128, 64)
    """Width of the tower's input (user and item embeddings, half each), then of each layer."""

    dropout: float = 0.5
    """Share of the tower's activations dropped in training, in steps of 1/256."""

    def __post_init__(self) -> None:
        check_whole("factors", self.factors, at_least=1)
        _check_tower(self.layers, self.dropout)


def _check_tower(layers: tuple[int, ...], dropout: float) -> None:
    check_sequence("layers", layers)
    widths = [width for width in layers if isinstance(width, int) and width >= 1]
    if len(widths) < max(2, len(layers)) or layers[0] % 2:
        raise SettingError(
            f"layers is {' '.join(map(str, layers)) or 'empty'}; give the width of the tower's "
            "input (even: half for users, half for items), then of each layer: 256 256 128 64"
        )
    check_number("dropout", dropout, at_least=0.0, below=1.0)

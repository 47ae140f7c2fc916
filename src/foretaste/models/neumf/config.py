"""Settings of NeuMF and of its two halves, GMF and the MLP alone (He et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foretaste.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How NeuMF, GMF and MLP see what users did *not* touch."""

    negatives: int = 4
    """Items sampled per interaction that the user has not interacted with."""

    verified_negatives: bool = True
    """Check that sampled items are not among the user's own; False is the reference's shortcut."""

    batch_layout: Literal["grouped", "shuffled"] = "grouped"
    """`grouped`: an interaction stays with its negatives in one batch, which is faster;
    `shuffled`: every sample is drawn on its own."""

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise SettingError(f"negatives is {self.negatives}; it must be at least 1")
        if self.batch_layout not in ("grouped", "shuffled"):
            raise SettingError(f"batch_layout is {self.batch_layout!r}; use grouped or shuffled")


@dataclass(frozen=True, kw_only=True)
class GMFConfig:
    """Generalised matrix factorisation: the element-wise half of NeuMF."""

    factors: int = 64
    """Width of the user and item factors."""

    def __post_init__(self) -> None:
        _check_factors(self.factors)


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
        _check_factors(self.factors)
        _check_tower(self.layers, self.dropout)


def _check_factors(factors: int) -> None:
    if factors < 1:
        raise SettingError(f"factors is {factors}; it must be at least 1")


def _check_tower(layers: tuple[int, ...], dropout: float) -> None:
    if len(layers) < 2 or min(layers) < 1 or layers[0] % 2:
        raise SettingError(
            f"layers is {' '.join(map(str, layers)) or 'empty'}; give the width of the tower's "
            "input (even: half for users, half for items), then of each layer: 256 256 128 64"
        )
    if not 0.0 <= dropout < 1.0:
        raise SettingError(f"dropout is {dropout}; it must be at least 0 and below 1")

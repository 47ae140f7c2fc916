"""Settings of Mult-VAE and Mult-DAE (Liang et al. 2018); defaults are NVIDIA's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from foretaste.errors import SettingError

Activation = Literal["tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class VAEConfig:
    """Mult-VAE: a variational autoencoder over histories with a multinomial likelihood."""

    hidden: tuple[int, ...] = (600,)
    """Widths of the encoder's hidden layers; the decoder mirrors them."""

    latent: int = 200
    """Width of the latent user vector."""

    dropout: float = 0.5
    """Share of a history's items hidden from the encoder in training."""

    activation: Activation = "tanh"
    """Activation of the hidden layers: tanh or relu."""

    anneal_cap: float = 0.1
    """Largest weight of the KL term; 0 leaves it out."""

    anneal_steps: int = 15_000
    """Updates after which the KL weight would reach 1: it is min(anneal_cap, update / this)."""

    anneal_epochs: float | None = None
    """The same in epochs, in place of anneal_steps: the batch size then does not matter."""

    l2: float = 0.0
    """Weight of the squared norm of all weight matrices, added to the loss."""

    sampled_softmax: int | None = None
    """Approximation for huge catalogues: train on this many sampled items, beside those of the
    batch's users, instead of all items; by default the loss is exact."""

    def __post_init__(self) -> None:
        _check_network(self.hidden, self.latent, self.dropout, self.activation, self.l2)
        _check_sampled(self.sampled_softmax)
        if not self.anneal_cap >= 0.0:
            raise SettingError(f"anneal_cap is {self.anneal_cap}; it must not be negative")
        if self.anneal_steps < 1:
            raise SettingError(f"anneal_steps is {self.anneal_steps}; it must be at least 1")
        if self.anneal_epochs is not None and not 0.0 < self.anneal_epochs < math.inf:
            raise SettingError(f"anneal_epochs is {self.anneal_epochs}; it must be above 0")


@dataclass(frozen=True, kw_only=True)
class DAEConfig:
    """Mult-DAE: the same network without the variational part."""

    hidden: tuple[int, ...] = (600,)
    """Widths of the encoder's hidden layers; the decoder mirrors them."""

    latent: int = 200
    """Width of the latent user vector."""

    dropout: float = 0.5
    """Share of a history's items hidden from the encoder in training."""

    activation: Activation = "tanh"
    """Activation of the hidden layers and the latent one: tanh or relu."""

    l2: float = 0.0
    """Weight of the squared norm of all weight matrices, added to the loss."""

    sampled_softmax: int | None = None
    """Approximation for huge catalogues: train on this many sampled items, beside those of the
    batch's users, instead of all items; by default the loss is exact."""

    def __post_init__(self) -> None:
        _check_network(self.hidden, self.latent, self.dropout, self.activation, self.l2)
        _check_sampled(self.sampled_softmax)


def _check_network(
    hidden: tuple[int, ...], latent: int, dropout: float, activation: str, l2: float
) -> None:
    if not hidden or min(hidden) < 1:
        raise SettingError(f"hidden is {hidden}; give one positive width or more, such as 600")
    if latent < 1:
        raise SettingError(f"latent is {latent}; it must be at least 1")
    if not 0.0 <= dropout < 1.0:
        raise SettingError(f"dropout is {dropout}; it must be at least 0 and below 1")
    if activation not in ("tanh", "relu"):
        raise SettingError(f"activation is {activation!r}; use tanh or relu")
    if not l2 >= 0.0:
        raise SettingError(f"l2 is {l2}; it must not be negative")


def _check_sampled(num_samples: int | None) -> None:
    if num_samples is not None and num_samples < 1:
        raise SettingError(f"sampled_softmax is {num_samples}; it must be at least 1")

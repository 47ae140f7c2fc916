"""Settings of Mult-VAE and Mult-DAE (Liang et al. 2018); defaults are NVIDIA's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from foretaste._util.checks import check_choice, check_number, check_sequence, check_whole
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
        check_number("anneal_cap", self.anneal_cap, at_least=0.0)
        check_whole("anneal_steps", self.anneal_steps, at_least=1)
        if self.anneal_epochs is not None:
            check_number("anneal_epochs", self.anneal_epochs, above=0.0)


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
    check_sequence("hidden", hidden)
    if not hidden:
        raise SettingError("hidden is empty; give one width or more, such as 600")
    for width in hidden:
        check_whole("hidden", width, at_least=1)
    check_whole("latent", latent, at_least=1)
    check_number("dropout", dropout, at_least=0.0, below=1.0)
    check_choice("activation", activation, get_args(Activation))
    check_number("l2", l2, at_least=0.0)


def _check_sampled(num_samples: int | None) -> None:
    if num_samples is not None:
        check_whole("sampled_softmax", num_samples, at_least=1)

"""Settings of Mult-VAE and Mult-DAE (Liang et al. 2018), by default NVIDIA's, and of RecVAE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range, setting_error
from foretaste.errors import SettingError
from foretaste.models.config import Between, Dropout, ModelConfig, SearchSpace, Widths

MANY_USERS = 100_000
"""Number of users from which the settings are NVIDIA's, which were found for ML-20M."""

_ANNEAL_CAP = 0.1
_ANNEAL_STEPS = 15_000
_KL_WEIGHT = 0.005

Weight = Annotated[float, Range(at_least=0, at_most=1e30)]
"""Weight of a term of the loss, which is float32: 1e30 still fits."""
Activation = Literal["tanh", "relu"]


_SPACE: SearchSpace = {
    "learning_rate": Between(3e-4, 5e-3, log=True),
    "hidden": ((200,), (600,), (1200,), (600, 200)),
    "latent": Between(50, 400, log=True),
    "dropout": Between(0.2, 0.8),
}


@dataclass(frozen=True, kw_only=True)
class _Network(ModelConfig):
    parallel = "data"
    architecture = ("hidden", "latent")

    hidden: Widths = (600,)
    """Widths of the encoder's hidden layers; the decoder mirrors them."""

    latent: Count = 200
    """Width of the latent user vector."""

    dropout: Dropout = 0.5
    """Share of a history's items hidden from the encoder in training."""

    activation: Activation = "tanh"
    """Activation of the hidden layers: tanh or relu."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise setting_error("hidden", self.hidden, "one width or more, such as 600")


@dataclass(frozen=True, kw_only=True)
class _Divergence(ModelConfig):
    kl_weight: Weight | Literal["auto"] = "auto"
    """Weight of the KL term for each item of a history. auto is 0.005 below 100,000 users; with
    more users, or if an annealing setting is given, the weight is annealed."""

    anneal_cap: Weight | None = None
    """Most that an annealed KL weight becomes: 0.1 unless given."""

    anneal_steps: Count | None = None
    """Updates: the weight is min(anneal_cap, update / this). 15,000 unless given."""

    anneal_epochs: Annotated[float | None, Range(above=0)] = None
    """The same in epochs, so that the batch size does not matter; goes before anneal_steps."""

    def kl_weight_for(self, num_users: int) -> float | None:
        """Return the KL weight per item of a history; None if it is annealed instead."""
        if self.kl_weight != "auto":
            return self.kl_weight
        return None if self._annealing or num_users >= MANY_USERS else _KL_WEIGHT

    def annealing(self, updates_per_epoch: int) -> tuple[float, float]:
        """Return an annealed KL term's largest weight, and the updates that would reach 1."""
        cap = _ANNEAL_CAP if self.anneal_cap is None else self.anneal_cap
        if self.anneal_epochs is not None:
            return cap, self.anneal_epochs * updates_per_epoch
        return cap, self.anneal_steps or _ANNEAL_STEPS

    @property
    def _annealing(self) -> dict[str, float]:
        """The annealing settings that are given."""
        names = ("anneal_cap", "anneal_steps", "anneal_epochs")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kl_weight != "auto" and self._annealing:
            name, value = next(iter(self._annealing.items()))
            raise SettingError(
                f"kl_weight is {self.kl_weight} and {name} is {value}, and the KL term is weighed "
                "by the history's length or annealed, not both; leave out one or the other"
            )


@dataclass(frozen=True, kw_only=True)
class _Loss(ModelConfig):
    # NVIDIA's default is 1, which never acted: its regulariser was passed on without a call.
    l2: Weight = 0.0
    """Weight of the squared norm of all weight matrices, added to the loss."""

    sampled_softmax: Count | None = None
    """Approximation for huge catalogues: train on this many sampled items, beside those of the
    batch's users, instead of all items; by default the loss is exact."""


# Fields come in the order of help and config.json from the last parent to the first.
@dataclass(frozen=True, kw_only=True)
class VAEConfig(_Loss, _Divergence, _Network):
    """Mult-VAE: a variational autoencoder over histories.

    Liang et al. 2018, arXiv 1802.05814. It recommends to new users at once, from a history of
    any length.
    """

    search_space = {**_SPACE, "kl_weight": Between(0.001, 0.05, log=True)}  # noqa: RUF012 (a ClassVar)


@dataclass(frozen=True, kw_only=True)
class DAEConfig(_Loss, _Network):
    """Mult-DAE: the autoencoder without the variational part.

    Liang et al. 2018, arXiv 1802.05814.
    """

    search_space = _SPACE

    activation: Activation = "tanh"
    """Activation of the hidden layers and the latent one: tanh or relu."""


@dataclass(frozen=True, kw_only=True)
class RecVAEConfig(ModelConfig):
    """RecVAE: a variational autoencoder whose prior keeps it near its own last encoder.

    Shenbin et al. 2020, arXiv 1912.11160. Encoder and decoder learn in turn, and the KL weight
    follows the length of the history.
    """

    parallel = "data"
    architecture = ("width", "latent")
    search_space = {  # noqa: RUF012 (a ClassVar of the parent)
        "learning_rate": Between(2e-4, 3e-3, log=True),
        "kl_weight": Between(0.001, 0.05, log=True),
        "latent": Between(50, 400, log=True),
        "dropout": Between(0.2, 0.8),
    }

    width: Count = 600
    """Width of each of the encoder's five layers."""

    latent: Count = 200
    """Width of the latent user vector."""

    dropout: Dropout = 0.5
    """Share of a history's items hidden from the encoder while it is trained."""

    kl_weight: Weight = 0.005
    """Weight of the KL term for each item of a user's history."""

    encoder_passes: Count = 3
    """Passes over the data that train the encoder in an epoch, before one trains the decoder."""

    sampled_softmax: Count | None = None
    """Approximation for huge catalogues: train on this many sampled items, beside those of the
    batch's users, instead of all items; by default the loss is exact."""

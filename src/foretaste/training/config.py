"""How a training runs: what may be asked, ``auto`` included. `resolve` turns it into numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from foretaste.checks import check_choice, check_number, check_whole
from foretaste.evaluation.config import CandidateRule

Auto = Literal["auto"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long, how fast and on what a neural model is trained."""

    epochs: int | Auto = "auto"
    """Passes over the training data, at most: early stopping may end it sooner."""

    batch_size: int | Auto = "auto"
    """Samples (NeuMF: interactions and their negatives) or users (Mult-VAE) per update."""

    learning_rate: float | Auto = "auto"
    """Adam's step size."""

    beta1: float | Auto = "auto"
    """Adam's decay of the gradient's mean."""

    beta2: float | Auto = "auto"
    """Adam's decay of the gradient's square."""

    eps: float = 1e-8
    """Added to the root of Adam's second moment."""

    seed: int = 1
    """Decides initial weights, order, negatives, dropout and noise."""

    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""

    precision: Precision = "fp32"
    """What the large products are computed in; weights and ranks are always fp32. tf32 needs an
    NVIDIA GPU; fp16 is for GPUs without bf16 and slow on a CPU."""

    loss_scale: float | None = None
    """Fixed scale of the loss, for fp16 only; it adapts to the gradients unless given."""

    eval_every: int | Auto = "auto"
    """Epochs from one validation to the next."""

    patience: int | Auto = "auto"
    """Validations without a better result before training stops; 0 never stops early."""

    target: float | None = None
    """Stop once the selected metric reaches this value."""

    select_by: str = "auto"
    """Metric that chooses the best epoch: ndcg@10, or ndcg@100 for held-out users."""

    validation_users: int = 10_000
    """Validation uses at most this many users, chosen by hash; final numbers use everyone."""

    candidates: str = "full"
    """What held-out items are ranked against: full, sampled-N or nvidia-N."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "eval_every"):
            check_whole(name, getattr(self, name), at_least=1, or_auto=True)
        check_whole("patience", self.patience, at_least=0, or_auto=True)
        check_whole("seed", self.seed, at_least=0, below=2**63)
        check_whole("validation_users", self.validation_users, at_least=1)
        check_number("learning_rate", self.learning_rate, above=0.0, or_auto=True)
        check_number("eps", self.eps, above=0.0)
        for name in ("beta1", "beta2"):
            check_number(name, getattr(self, name), at_least=0.0, below=1.0, or_auto=True)
        if self.target is not None:
            check_number("target", self.target, above=0.0, at_most=1.0)
        check_choice("precision", self.precision, get_args(Precision))
        if self.loss_scale is not None:
            check_number("loss_scale", self.loss_scale, above=0.0)
        CandidateRule.parse(self.candidates)

"""How a training runs: what may be asked, ``auto`` included. `resolve` turns it into numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from foretaste._util.checks import check_choice, check_number, check_whole
from foretaste.errors import SettingError
from foretaste.evaluation.config import CandidateRule, check_evaluation_batch

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

    compile: bool = False
    """Hand the loss to torch.compile, once, before the first epoch. Takes a C++ compiler on a CPU,
    where the built-in form is faster."""

    cuda_graphs: bool = True
    """On an NVIDIA GPU, record the step once and replay it, wherever the model allows."""

    eval_every: int | Auto = "auto"
    """Epochs from one validation to the next."""

    eval_after: int = 0
    """Epochs before the first validation; the last epoch is always validated."""

    warm_up_epochs: int = 0
    """Epochs that the final times and throughputs leave out; the last epoch always counts."""

    patience: int | Auto = "auto"
    """Validations without a better result before training stops; 0 never stops early."""

    target: float | None = None
    """Stop once the selected metric reaches this value."""

    select_by: str = "auto"
    """Metric that chooses the best epoch: ndcg@10, or ndcg@100 for held-out users."""

    validation_users: int = 10_000
    """Validation uses at most this many users, chosen by hash; final numbers use everyone."""

    evaluation_batch: int | None = None
    """Users ranked at once; as many as fit 64 MiB of scores unless given."""

    checkpoint_every_s: float = 60.0
    """Seconds from one saved state of the training to the next, for --resume; 0 saves after every
    update."""

    candidates: str = "full"
    """What held-out items are ranked against: full, sampled-N, nvidia-N or fixed."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "eval_every"):
            check_whole(name, getattr(self, name), at_least=1, or_auto=True)
        check_whole("patience", self.patience, at_least=0, or_auto=True)
        check_whole("seed", self.seed, at_least=0, below=2**63)
        for name in ("eval_after", "warm_up_epochs"):
            check_whole(name, getattr(self, name), at_least=0)
        check_whole("validation_users", self.validation_users, at_least=1)
        check_evaluation_batch(self.evaluation_batch)
        check_number("learning_rate", self.learning_rate, above=0.0, or_auto=True)
        check_number("eps", self.eps, above=0.0)
        for name in ("beta1", "beta2"):
            check_number(name, getattr(self, name), at_least=0.0, below=1.0, or_auto=True)
        if self.target is not None:
            check_number("target", self.target, above=0.0, at_most=1.0)
        check_number("checkpoint_every_s", self.checkpoint_every_s, at_least=0.0)
        check_choice("precision", self.precision, get_args(Precision))
        if self.loss_scale is not None:
            check_number("loss_scale", self.loss_scale, above=0.0)
        CandidateRule.parse(self.candidates)


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """What a training writes beside its run directory's log, and where."""

    log_path: Path | None = None
    """Copy metrics.jsonl to this file as it is written. Its folder is made; what another training
    wrote there is never replaced."""

    results_dir: Path | None = None
    """Directory for args.json, every setting, and metrics.json, every number of the training. It is
    made; what another training wrote there is never replaced."""

    tensorboard: bool = False
    """Write the same numbers for TensorBoard into the run directory: tensorboard --logdir runs."""

    trace: bool = False
    """Profile three steps, and the evaluation that follows, into trace.json in the run directory,
    for ui.perfetto.dev: the first of the second epoch or, where there is only one, those after its
    first three. That epoch takes longer."""


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """NeuMF's warm start from its two halves trained alone (He et al. 2017, section 3.4.1)."""

    pretrained_gmf: Path | None = None
    """Run of GMF that the factors start from; together with pretrained_mlp."""

    pretrained_mlp: Path | None = None
    """Run of MLP that the tower starts from; together with pretrained_gmf."""

    pretrained_alpha: float = 0.5
    """Share of GMF in the first scores; the tower has the rest."""

    def __post_init__(self) -> None:
        if self.pretrained_gmf is None or self.pretrained_mlp is None:
            missing = "pretrained_gmf" if self.pretrained_gmf is None else "pretrained_mlp"
            raise SettingError(
                "a NeuMF begins with both of its halves, --pretrained-gmf RUN and --pretrained-mlp "
                f"RUN (pretrained_gmf=... and pretrained_mlp=... in Python); {missing} is not given"
            )
        check_number("pretrained_alpha", self.pretrained_alpha, at_least=0.0, at_most=1.0)

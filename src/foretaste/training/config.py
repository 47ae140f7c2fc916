"""Settings of a training, ``auto`` included, which `resolve` turns into numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range, Seed, check_settings
from foretaste.errors import SettingError
from foretaste.evaluation.config import CandidateRule
from foretaste.models.config import Auto, ModelConfig

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Kernels = Literal["auto", "chunked", "triton"]
LearningRateSchedule = Literal["constant", "cosine"]
LossScale = Annotated[float | None, Range(above=0, at_most=2**32)]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of a training: length, speed, device and validation."""

    epochs: Annotated[int | Auto, Range(at_least=1)] = "auto"
    """Passes over the training data, at most: early stopping may end it sooner."""

    batch_size: Annotated[int | Auto, Range(at_least=1)] = "auto"
    """Samples per update, as the model counts them: interactions and their negatives, users, or
    steps from an item to the next."""

    learning_rate: Annotated[float | Auto, Range(above=0)] = "auto"
    """Adam's step size."""

    learning_rate_schedule: Literal[LearningRateSchedule, Auto] = "auto"
    """constant, or cosine: falls to 0 over epochs, and patience does not end it. auto is cosine if
    the model gains by it on data of the size, unless a patience above 0 or a target is given."""

    schedule_epochs: Count | None = None
    """Epochs over which cosine falls, where training ends sooner; all epochs unless given."""

    beta1: Annotated[float | Auto, Range(at_least=0, below=1)] = "auto"
    """Adam's decay of the gradient's mean."""

    beta2: Annotated[float | Auto, Range(at_least=0, below=1)] = "auto"
    """Adam's decay of the gradient's square."""

    eps: Annotated[float, Range(above=0)] = 1e-8
    """Added to the root of Adam's second moment."""

    ema: Annotated[float | Auto, Range(at_least=0, below=1)] = "auto"
    """Decay, such as 0.999, of an average of the weights, kept in their place; 0 for none."""

    seed: Seed = 1
    """Decides initial weights, order, negatives, dropout and noise."""

    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""

    precision: Literal[Precision, Auto] = "auto"
    """What the large products are computed in; weights and ranks are always fp32. auto is tf32
    (bf16 with kernels triton) on NVIDIA GPUs that have it, from compute capability 8.0 on, else
    fp32; fp16 is for GPUs without bf16 and slow on a CPU."""

    loss_scale: LossScale = None
    """Fixed scale of the loss, for fp16 only; it adapts to the gradients unless given."""

    kernels: Kernels = "auto"
    """Operations on an NVIDIA GPU: chunked, which is auto, is PyTorch alone; triton takes Triton's
    kernels once each was seen to be right there. On a CPU only chunked ones exist."""

    cuda_graphs: bool = True
    """On an NVIDIA GPU, record the step once and replay it, wherever the model allows."""

    eval_every: Annotated[int | Auto, Range(at_least=1)] = "auto"
    """Epochs from one validation to the next."""

    eval_after: Annotated[int, Range(at_least=0)] = 0
    """Epochs before the first validation; the last epoch is always validated."""

    warm_up_epochs: Annotated[int, Range(at_least=0)] = 0
    """Epochs that the final times and throughputs leave out; the last epoch always counts."""

    patience: Annotated[int | Auto, Range(at_least=0)] = "auto"
    """Validations without a better result before training stops; 0 never stops early."""

    target: Annotated[float | None, Range(above=0, at_most=1)] = None
    """Stop once the selected metric reaches this value."""

    select_by: str = "auto"
    """Metric that chooses epoch and settings: ndcg@10, or ndcg@100 for held-out users."""

    search: bool = True
    """Search the settings left at auto with a few fits on the validation part. If false, or without
    a validation part, the rule of auto sets them."""

    validation_users: Count = 10_000
    """The epoch is chosen by at most this many users, drawn by the dataset's seed; final numbers
    use everyone. Without a validation part the test part chooses; a target or sampled candidates
    then use everyone."""

    evaluation_batch: Count | None = None
    """Users ranked at once; unless given, as many as fit a CPU's cache (8 MiB of scores, or 64
    users) or 512 MiB on a GPU.
    Ranking takes three times that. It is counted before training begins."""

    checkpoint_every_s: Annotated[float, Range(at_least=0)] = 60.0
    """Seconds from one saved state of the training to the next, for --resume; 0 saves after every
    update."""

    candidates: str = "full"
    """What held-out items are ranked against: full, new (held-out items that training never saw),
    sampled-N, nvidia-N or fixed."""

    def __post_init__(self) -> None:
        check_settings(self)
        CandidateRule.parse(self.candidates)
        if self.learning_rate_schedule == "cosine":
            self._check_schedule()
        elif self.schedule_epochs is not None and self.learning_rate_schedule == "constant":
            raise SettingError(
                f"schedule_epochs is {self.schedule_epochs}, and a constant learning rate has no "
                "schedule; leave it out, or use --learning-rate-schedule cosine"
            )

    def _check_schedule(self) -> None:
        if self.patience not in ("auto", 0):
            raise SettingError(
                f"learning_rate_schedule is cosine, which takes all epochs, and patience is "
                f"{self.patience}; leave out --patience, or take a constant rate"
            )
        if self.epochs != "auto" and (self.schedule_epochs or self.epochs) < self.epochs:
            raise SettingError(
                f"schedule_epochs is {self.schedule_epochs}, after which the learning rate is 0, "
                f"and epochs is {self.epochs}; give as many or more"
            )


_NEEDS = {
    **dict.fromkeys(("device", "candidates", "evaluation_batch"), None),
    **dict.fromkeys(
        (
            *("batch_size", "learning_rate", "learning_rate_schedule", "schedule_epochs"),
            *("beta1", "beta2", "eps", "ema"),
            *("kernels", "cuda_graphs"),
        ),
        "has_steps",
    ),
    **dict.fromkeys(("precision", "loss_scale"), "has_large_products"),
}
"""For each setting, the fact about a model that it needs to act; None if it acts on all models.
Settings that are not listed need only epochs."""


def applies(name: str, kind: type[ModelConfig]) -> bool:
    """Return True for a setting of the training that acts on models of a kind."""
    if name == "search" or (name == "select_by" and not kind.has_epochs):
        return kind.has_candidates
    need = _NEEDS.get(name, "has_epochs")
    return need is None or (kind.has_epochs and bool(getattr(kind, need)))


def acting(config: TrainingConfig, kind: type[ModelConfig]) -> TrainingConfig:
    """``config``, which may serve several models, without the settings that a kind ignores."""
    defaults = TrainingConfig()
    ignored = [item.name for item in fields(TrainingConfig) if not applies(item.name, kind)]
    return replace(config, **{name: getattr(defaults, name) for name in ignored})


def check_settings_act(model: str, kind: type[ModelConfig], by_name: Collection[str]) -> None:
    """SettingError for settings given by name that would do nothing."""
    names = [item.name for item in fields(TrainingConfig)]
    for name in names:
        if name in by_name and not applies(name, kind):
            others = ", ".join(one for one in names if applies(one, kind))
            raise SettingError(
                f"{name} does nothing for {model}, which heeds {others}; leave it out, or give it "
                "in a config that serves several models"
            )


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Files that a training writes beside its run directory's log."""

    log_path: Path | None = None
    """Copy metrics.jsonl to this file as it is written; overwrite replaces one that is there."""

    results_dir: Path | None = None
    """Directory for args.json, every setting, and metrics.json, every number; overwrite replaces
    those that are there."""

    tensorboard: bool = False
    """Write the same numbers for TensorBoard into the run directory: tensorboard --logdir runs."""

    trace: bool = False
    """Profile three steps, after the first three, into trace.json in the run directory, for
    ui.perfetto.dev. Their epoch takes longer."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """NeuMF's warm start from its two halves trained alone (He et al. 2017, section 3.4.1)."""

    pretrained_gmf: Path | None = None
    """Run of GMF that the factors start from; together with pretrained_mlp."""

    pretrained_mlp: Path | None = None
    """Run of MLP that the tower starts from; together with pretrained_gmf."""

    pretrained_alpha: Annotated[float, Range(at_least=0, at_most=1)] = 0.5
    """Share of GMF in the first scores; the tower has the rest."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.pretrained_gmf is None or self.pretrained_mlp is None:
            missing = "pretrained_gmf" if self.pretrained_gmf is None else "pretrained_mlp"
            raise SettingError(
                "a NeuMF begins with both of its halves, --pretrained-gmf RUN and --pretrained-mlp "
                f"RUN (pretrained_gmf=... and pretrained_mlp=... in Python); {missing} is not given"
            )

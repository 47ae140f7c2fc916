"""Turns ``auto`` into numbers: the reference settings at the reference's size, less below it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from foretaste._util.settings import Count, Seed, check_settings
from foretaste.errors import SettingError
from foretaste.evaluation.definitions import metric_name, parse_metric
from foretaste.training.config import Kernels, Precision, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """What the choices depend on."""

    num_interactions: int
    num_users: int
    protocol: str


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A `TrainingConfig` without any ``auto`` left: what one training does."""

    epochs: Count
    batch_size: Count
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    seed: Seed
    device: str
    precision: Precision
    loss_scale: float | None
    compile: bool
    kernels: Kernels
    cuda_graphs: bool
    eval_every: Count
    eval_after: int
    warm_up_epochs: int
    patience: int
    target: float | None
    select_by: str
    validation_users: Count
    evaluation_batch: Count | None
    checkpoint_every_s: float
    candidates: str

    def __post_init__(self) -> None:
        check_settings(self)

    def evaluates(self, epoch: int) -> bool:
        """Whether an epoch, counted from 1, ends with an evaluation."""
        is_due = epoch > self.eval_after and epoch % self.eval_every == 0
        return is_due or epoch == self.epochs


def resolve(
    config: TrainingConfig,
    size: TrainingSize,
    *,
    samples_per_interaction: int | None,
    device: str,
) -> TrainingPlan:
    """The plan for ``config`` on data of that size.

    Args:
        samples_per_interaction: an interaction and its negatives, for the NeuMF family; None for
            an autoencoder, whose samples are users.
        device: the device found for ``config.device``.
    """
    if samples_per_interaction is None:
        chosen = _autoencoder_plan(size)
    else:
        chosen = _neumf_plan(size.num_interactions * samples_per_interaction)
        if size.protocol == "held-out-users":  # fitting new users costs more than an epoch
            chosen["eval_every"] = 2
    chosen["select_by"] = "ndcg@100" if size.protocol == "held-out-users" else "ndcg@10"
    asked = {name: value for name, value in asdict(config).items() if value != "auto"}
    values = chosen | asked | {"device": device, "kernels": _kernels(config, device)}
    kind, length = parse_metric(values["select_by"])
    if kind == "coverage" and config.candidates != "full":
        raise SettingError(
            f"select_by is coverage@{length}, which candidates {config.candidates} do not have; "
            "use --candidates full or another metric"
        )
    return TrainingPlan(**(values | {"select_by": metric_name(kind, length)}))


def _kernels(config: TrainingConfig, device: str) -> Kernels:
    """On a CPU there is one choice; on a GPU every operation has its own, by its sizes."""
    if device != "cpu":
        return config.kernels
    if config.kernels == "triton":
        raise SettingError(
            "kernels is triton, whose kernels are for NVIDIA GPUs, and the device is the CPU; "
            "leave it out"
        )
    return "chunked"


def _neumf_plan(num_samples: int) -> dict[str, Any]:
    """NVIDIA's settings from 50 M samples an epoch on; smaller batches and steps below."""
    if num_samples >= 50_000_000:
        return {
            "epochs": 40,
            "batch_size": 1 << 20,
            "learning_rate": 0.0045,
            "beta1": 0.25,
            "beta2": 0.5,
            "eval_every": 1,
            "patience": 5,
        }
    return {
        "epochs": 40,
        "batch_size": _power_of_two(num_samples // 100, 1 << 11, 1 << 16),
        "learning_rate": 0.002,
        "beta1": 0.9,
        "beta2": 0.999,
        "eval_every": 1,
        "patience": 5,
    }


def _autoencoder_plan(size: TrainingSize) -> dict[str, Any]:
    """NVIDIA's settings from 100,000 users on; smaller batches and steps below."""
    if size.num_users >= 100_000:
        return {
            "epochs": 400,
            "batch_size": 24_576,
            "learning_rate": 0.004,
            "beta1": 0.9,
            "beta2": 0.9,
            "eval_every": 10,
            "patience": 5,
        }
    return {
        "epochs": 200,
        "batch_size": _power_of_two(size.num_users // 10, 1 << 6, 1 << 13),
        "learning_rate": 0.001,
        "beta1": 0.9,
        "beta2": 0.999,
        "eval_every": 5,
        "patience": 5,
    }


def _power_of_two(value: int, smallest: int, largest: int) -> int:
    return min(max(1 << max(0, value).bit_length() >> 1, smallest), largest)

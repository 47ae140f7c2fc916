"""``foretaste train`` of neumf, gmf, mlp, vae and dae; ``--like`` a run, ``--resume`` one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from foretaste.cli.training_session import (
    LogOptions,
    RawData,
    RawOptions,
    RunOptions,
    resume_and_report,
    train_and_report,
)
from foretaste.data.manifest import FILE_NAME
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig, SamplingConfig
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.training.config import PretrainingConfig, TrainingConfig

_MODEL = Parameter(name="*", group="Model")
Sampling = Annotated[SamplingConfig | None, Parameter(name="*", group="Negatives")]
Pretraining = Annotated[PretrainingConfig | None, Parameter(name="*", group="Start")]


@dataclass(frozen=True, kw_only=True)
class NeuralOptions:
    """What every neural model's training can be told."""

    config: Annotated[TrainingConfig | None, Parameter(name="*", group="Training")] = None
    start_from: Annotated[Path | None, Parameter(name="--from", group="Start")] = None
    """Run of the same model and sizes whose weights to begin with. Users and items are matched by
    id; those it does not know begin as in any training."""

    raw: RawOptions = None
    place: RunOptions = None
    logs: LogOptions = None

    def train(self, model: str, dataset: Path, **settings: Any) -> None:
        """Train ``model``; ``settings`` are its own."""
        train_and_report(model, dataset, **vars(self), **settings)


Options = Annotated[NeuralOptions | None, Parameter(name="*")]


def neumf(
    dataset: Path,
    /,
    *,
    model: Annotated[NeuMFConfig | None, _MODEL] = None,
    sampling: Sampling = None,
    options: Options = None,
    pretraining: Pretraining = None,
) -> None:
    """Train NeuMF (He et al. 2017): a matrix factorisation and a multilayer tower, joined.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    settings = {"model_config": model, "sampling": sampling, "pretraining": pretraining}
    (options or NeuralOptions()).train("neumf", dataset, **settings)


def gmf(
    dataset: Path,
    /,
    *,
    model: Annotated[GMFConfig | None, _MODEL] = None,
    sampling: Sampling = None,
    options: Options = None,
) -> None:
    """Train GMF: the factorisation half of NeuMF alone.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    (options or NeuralOptions()).train("gmf", dataset, model_config=model, sampling=sampling)


def mlp(
    dataset: Path,
    /,
    *,
    model: Annotated[MLPConfig | None, _MODEL] = None,
    sampling: Sampling = None,
    options: Options = None,
) -> None:
    """Train the tower half of NeuMF alone.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    (options or NeuralOptions()).train("mlp", dataset, model_config=model, sampling=sampling)


def vae(
    dataset: Path,
    /,
    *,
    model: Annotated[VAEConfig | None, _MODEL] = None,
    options: Options = None,
) -> None:
    """Train Mult-VAE (Liang et al. 2018): a variational autoencoder over histories.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    (options or NeuralOptions()).train("vae", dataset, model_config=model)


def dae(
    dataset: Path,
    /,
    *,
    model: Annotated[DAEConfig | None, _MODEL] = None,
    options: Options = None,
) -> None:
    """Train Mult-DAE (Liang et al. 2018): the autoencoder without the variational part.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    (options or NeuralOptions()).train("dae", dataset, model_config=model)


def like(
    run: Path,
    dataset: Path,
    /,
    *,
    raw: RawOptions = None,
    place: RunOptions = None,
    logs: LogOptions = None,
) -> None:
    """Train again as an earlier run was, for as many epochs as its best one took.

    Args:
        run: Directory of the run whose settings are repeated.
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    from foretaste.runs import Run
    from foretaste.training.like import repeated_settings

    settings = repeated_settings(Run.open(run))
    raw = raw or RawData()
    if raw.protocol is None and not (dataset / FILE_NAME).is_file():
        raw = replace(raw, protocol="none")
    train_and_report(
        settings.model,
        dataset,
        raw,
        place,
        logs,
        model_config=settings.model_config,
        config=settings.config,
        sampling=settings.sampling,
        start_from=settings.start_from,
        pretraining=settings.pretraining,
    )


def resume(run: Path, /, *, dataset: Path | None = None, logs: LogOptions = None) -> None:
    """Go on with a training that was interrupted or killed, from its last saved state.

    Args:
        run: Directory of the run.
        dataset: Where the run's dataset is now, if it is not where it was.
    """
    resume_and_report(run, dataset, logs)

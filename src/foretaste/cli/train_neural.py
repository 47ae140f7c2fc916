"""``foretaste train neumf | gmf | mlp | vae | dae``, and ``--like`` an earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretaste.cli.training_session import (
    RawData,
    RawOptions,
    RunOptions,
    train_and_report,
)
from foretaste.data.manifest import FILE_NAME
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig, SamplingConfig
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.training.config import TrainingConfig

_MODEL = Parameter(name="*", group="Model")
SamplingOptions = Annotated[SamplingConfig | None, Parameter(name="*", group="Negatives")]
TrainingOptions = Annotated[TrainingConfig | None, Parameter(name="*", group="Training")]


def neumf(
    dataset: Path,
    /,
    *,
    model: Annotated[NeuMFConfig | None, _MODEL] = None,
    sampling: SamplingOptions = None,
    config: TrainingOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
) -> None:
    """Train NeuMF (He et al. 2017): a matrix factorisation and a multilayer tower, joined.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    train_and_report(
        "neumf", dataset, raw, place, model_config=model, sampling=sampling, config=config
    )


def gmf(
    dataset: Path,
    /,
    *,
    model: Annotated[GMFConfig | None, _MODEL] = None,
    sampling: SamplingOptions = None,
    config: TrainingOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
) -> None:
    """Train GMF: the factorisation half of NeuMF alone.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    train_and_report(
        "gmf", dataset, raw, place, model_config=model, sampling=sampling, config=config
    )


def mlp(
    dataset: Path,
    /,
    *,
    model: Annotated[MLPConfig | None, _MODEL] = None,
    sampling: SamplingOptions = None,
    config: TrainingOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
) -> None:
    """Train the tower half of NeuMF alone.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    train_and_report(
        "mlp", dataset, raw, place, model_config=model, sampling=sampling, config=config
    )


def vae(
    dataset: Path,
    /,
    *,
    model: Annotated[VAEConfig | None, _MODEL] = None,
    config: TrainingOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
) -> None:
    """Train Mult-VAE (Liang et al. 2018): a variational autoencoder over histories.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    train_and_report("vae", dataset, raw, place, model_config=model, config=config)


def dae(
    dataset: Path,
    /,
    *,
    model: Annotated[DAEConfig | None, _MODEL] = None,
    config: TrainingOptions = None,
    raw: RawOptions = None,
    place: RunOptions = None,
) -> None:
    """Train Mult-DAE (Liang et al. 2018): the autoencoder without the variational part.

    Args:
        dataset: Directory made by foretaste prepare, or a raw file, which is prepared first.
    """
    train_and_report("dae", dataset, raw, place, model_config=model, config=config)


def like(
    run: Path,
    dataset: Path,
    /,
    *,
    raw: RawOptions = None,
    place: RunOptions = None,
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
        model_config=settings.model_config,
        config=settings.config,
        sampling=settings.sampling,
    )

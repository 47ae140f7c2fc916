"""``foretaste train`` of neumf, gmf, mlp, vae and dae; ``--like`` a run, ``--resume`` one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG, given_settings
from foretaste.cli.help import MODEL, NEGATIVES, START, TrainingSettings
from foretaste.cli.training_session import (
    LogOptions,
    RawData,
    RawOptions,
    RunOptions,
    Source,
    resume_and_report,
    train_and_report,
)
from foretaste.data.manifest import FILE_NAME
from foretaste.models.config import SamplingConfig
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.models.vae.config import DAEConfig, VAEConfig
from foretaste.training.config import PretrainingConfig

_MODEL = Parameter(name="*", group=MODEL)
Sampling = Annotated[SamplingConfig | None, Parameter(name="*", group=NEGATIVES)]
Pretraining = Annotated[PretrainingConfig | None, Parameter(name="*", group=START)]


@dataclass(frozen=True, kw_only=True)
class NeuralOptions:
    """What every neural model's training can be told."""

    config: Annotated[TrainingSettings | None, Parameter(name="*")] = None
    start_from: Annotated[Path | None, Parameter(name="--from", group=START)] = None
    """Run of the same model whose weights to begin with; its settings of the model hold too, where
    none are given. Users and items are matched by id; those it does not know begin as in any
    training."""

    raw: RawOptions = None
    place: RunOptions = None
    logs: LogOptions = None

    def train(self, name: str, dataset: Sequence[Path], model: Any, **configs: Any) -> None:
        """Train the model of this name; ``model`` has its settings, ``configs`` its own configs."""
        train_and_report(name, dataset, **vars(self), **configs, **given_settings(model))


Options = Annotated[NeuralOptions | None, Parameter(name="*")]


def neumf(
    *dataset: Source,
    model: Annotated[NeuMFConfig | None, _MODEL] = None,
    sampling: Sampling = None,
    options: Options = None,
    pretraining: Pretraining = None,
) -> None:
    """Train NeuMF (He et al. 2017): a matrix factorisation and a multilayer tower, joined.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    configs = {"sampling": sampling, "pretraining": pretraining}
    (options or NeuralOptions()).train("neumf", dataset, model, **configs)


def gmf(
    *dataset: Source,
    model: Annotated[GMFConfig | None, _MODEL] = None,
    sampling: Sampling = None,
    options: Options = None,
) -> None:
    """Train GMF: the factorisation half of NeuMF alone.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    (options or NeuralOptions()).train("gmf", dataset, model, sampling=sampling)


def mlp(
    *dataset: Source,
    model: Annotated[MLPConfig | None, _MODEL] = None,
    sampling: Sampling = None,
    options: Options = None,
) -> None:
    """Train the tower half of NeuMF alone.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    (options or NeuralOptions()).train("mlp", dataset, model, sampling=sampling)


def vae(
    *dataset: Source,
    model: Annotated[VAEConfig | None, _MODEL] = None,
    options: Options = None,
) -> None:
    """Train Mult-VAE (Liang et al. 2018): a variational autoencoder over histories.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    (options or NeuralOptions()).train("vae", dataset, model)


def dae(
    *dataset: Source,
    model: Annotated[DAEConfig | None, _MODEL] = None,
    options: Options = None,
) -> None:
    """Train Mult-DAE (Liang et al. 2018): the autoencoder without the variational part.

    Args:
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    (options or NeuralOptions()).train("dae", dataset, model)


def like(
    run: Path,
    /,
    *dataset: Source,
    start_from: Annotated[Path | None, Parameter(name="--from", group=START)] = None,
    raw: RawOptions = None,
    place: RunOptions = None,
    logs: LogOptions = None,
) -> None:
    """Train again as an earlier run was, for as many epochs as its best one took.

    Args:
        run: Directory of the run whose settings are repeated.
        start_from: Run of the same model whose weights to begin with, such as the run itself;
            without it the weights begin as those of the run did.
        dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
    """
    from foretaste.runs import Run

    opened = Run.open(run)

    from foretaste.training.verbs import rerun_settings

    settings = rerun_settings(opened)
    if start_from is not None:
        settings |= {"start_from": start_from, "pretraining": None}
    raw = raw or RawData()
    if raw.protocol is None and not (dataset[0] / FILE_NAME).is_file():
        raw = replace(raw, protocol="none")
    train_and_report(settings.pop("model"), dataset, raw, place, logs, **settings)


def resume(
    run: Path,
    /,
    *,
    dataset: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    logs: LogOptions = None,
) -> None:
    """Go on with a training that was interrupted or killed, from its last saved state.

    Args:
        run: Directory of the run.
        dataset: Where the run's dataset is now, if it is not where it was.
        overwrite: Replace, in the end, what another training wrote to --log-path and
            --results-dir.
    """
    resume_and_report(run, dataset, logs, overwrite=overwrite)

"""foretaste: from who-touched-what to recommendations.

::

    import foretaste

    dataset = foretaste.prepare("ratings.csv", "datasets/ratings")
    run = foretaste.train("neumf", dataset)
    recommender = foretaste.load(run.path)
    recommender.recommend([42], k=10)

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretaste._util.lazy import lazy_names

if TYPE_CHECKING:
    from foretaste.data import Dataset, GivenSplit, PrepareConfig, open_dataset, prepare
    from foretaste.errors import DataWarning, ForetasteError
    from foretaste.evaluation import Evaluation, EvaluationConfig
    from foretaste.export import export_run
    from foretaste.in_memory import fit
    from foretaste.models.baselines.config import (
        EaseConfig,
        IALSConfig,
        ItemKNNConfig,
        RP3betaConfig,
    )
    from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
    from foretaste.models.vae.config import DAEConfig, RecVAEConfig, VAEConfig
    from foretaste.recommend import Answer, Answers, Recommender, load
    from foretaste.report import compare_runs, evaluate_run, report_runs
    from foretaste.runs import Run
    from foretaste.training import (
        LogConfig,
        PretrainingConfig,
        TrainingConfig,
        blend,
        resume,
        train,
    )
    from foretaste.tune import compete, tune_model

__version__ = "0.1.0"

_MODULE_OF = {
    "Answer": "recommend",
    "Answers": "recommend",
    "DAEConfig": "models.vae.config",
    "DataWarning": "errors",
    "Dataset": "data",
    "EaseConfig": "models.baselines.config",
    "Evaluation": "evaluation",
    "EvaluationConfig": "evaluation",
    "ForetasteError": "errors",
    "GMFConfig": "models.neumf.config",
    "GivenSplit": "data",
    "IALSConfig": "models.baselines.config",
    "ItemKNNConfig": "models.baselines.config",
    "LogConfig": "training",
    "MLPConfig": "models.neumf.config",
    "NeuMFConfig": "models.neumf.config",
    "PrepareConfig": "data",
    "PretrainingConfig": "training",
    "RP3betaConfig": "models.baselines.config",
    "RecVAEConfig": "models.vae.config",
    "Recommender": "recommend",
    "Run": "runs",
    "TrainingConfig": "training",
    "VAEConfig": "models.vae.config",
    "blend": "training",
    "compare_runs": "report",
    "compete": "tune",
    "evaluate_run": "report",
    "export_run": "export",
    "fit": "in_memory",
    "load": "recommend",
    "open_dataset": "data",
    "prepare": "data",
    "report_runs": "report",
    "resume": "training",
    "train": "training",
    "tune_model": "tune",
}

__all__ = [
    "Answer",
    "Answers",
    "DAEConfig",
    "DataWarning",
    "Dataset",
    "EaseConfig",
    "Evaluation",
    "EvaluationConfig",
    "ForetasteError",
    "GMFConfig",
    "GivenSplit",
    "IALSConfig",
    "ItemKNNConfig",
    "LogConfig",
    "MLPConfig",
    "NeuMFConfig",
    "PrepareConfig",
    "PretrainingConfig",
    "RP3betaConfig",
    "RecVAEConfig",
    "Recommender",
    "Run",
    "TrainingConfig",
    "VAEConfig",
    "__version__",
    "blend",
    "compare_runs",
    "compete",
    "evaluate_run",
    "export_run",
    "fit",
    "load",
    "open_dataset",
    "prepare",
    "report_runs",
    "resume",
    "train",
    "tune_model",
]

__getattr__ = lazy_names(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Runs measured on the dataset they were trained on, alone or side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.keywords import ConfigArgument, routed
from foretaste.data.dataset import Dataset, Split
from foretaste.errors import SettingError
from foretaste.evaluation.compare import Difference, compare_evaluations
from foretaste.evaluation.config import EvaluationConfig
from foretaste.report.tables import metric_rows
from foretaste.runs.origin import dataset_of
from foretaste.runs.run import Run

if TYPE_CHECKING:
    from foretaste.evaluation.result import Evaluation

Progress = Callable[[int, int], None]


def evaluate_run(
    run: Run | Path | str,
    dataset: Dataset | Path | str | None = None,
    config: EvaluationConfig | None = None,
    *,
    split: Split = "test",
    device: str = "auto",
    progress: Progress | None = None,
    **settings: Any,
) -> Evaluation:
    """Metrics of a run's best weights on the held-out users of its dataset.

    Settings may be given by name, ``evaluate_run(run, k=[5, 10])``, and go before what ``config``
    says.

    ``dataset`` is looked for where it was when the run was trained, unless given. Raises
    DatasetError where it is not there, is not what the run was trained on, or has no such split.
    """
    from foretaste.evaluation.evaluate import evaluate
    from foretaste.runs.loading import load_model

    (config,) = routed(evaluate_run, [ConfigArgument("config", EvaluationConfig, config)], settings)
    asked = config or EvaluationConfig()
    if not isinstance(run, Run):
        run = Run.open(run)
    dataset = dataset_of(run, dataset)
    heldout = dataset.heldout(split)
    return evaluate(
        load_model(run, device),
        heldout,
        num_train_users=dataset.manifest.num_train_users,
        protocol=dataset.manifest.protocol,
        candidates=asked.candidates,
        k=asked.k,
        seed=dataset.manifest.seed,
        batch=asked.evaluation_batch,
        progress=progress,
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs side by side."""

    evaluations: dict[str, Evaluation]
    """By label, in the order given."""

    differences: dict[str, dict[str, Difference]]
    """How much higher each later run is than the first, by label and metric."""

    paths: dict[str, Path]
    """The run behind each label."""

    def notes(self, metrics: Sequence[str]) -> list[str]:
        """Lines to print below the numbers: the run behind each label, and what was measured."""
        lines = [f"{label}: {path}" for label, path in self.paths.items()]
        definitions = [
            line
            for evaluation in self.evaluations.values()
            for line in evaluation.definitions(metrics)
        ]
        return lines + list(dict.fromkeys(definitions))

    def rows(self) -> list[dict[str, Any]]:
        """One flat record per run and metric, with how much higher it is than the first run.

        ``difference`` and its interval are None where there is none: of the first run itself, and
        of coverage.
        """
        return [
            row | _difference_fields(self.differences.get(label, {}).get(row["metric"]))
            for label, evaluation in self.evaluations.items()
            for row in metric_rows(self.paths[label], label, evaluation)
        ]


def compare_runs(
    runs: Sequence[Run],
    config: EvaluationConfig | None = None,
    *,
    split: Split = "test",
    dataset_path: Path | str | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Comparison:
    """Every run measured on their dataset in the same way.

    ``dataset_path`` says where the dataset of all of them is now. ``progress`` is told the number
    of users done and in all, of one run after the other. Raises SettingError where the runs were
    trained on different datasets.
    """
    _check_same_dataset(runs)
    labelled = dict(zip(_labels(runs), runs, strict=True))
    evaluations = {
        label: evaluate_run(
            run,
            dataset_path,
            config,
            split=split,
            device=device,
            progress=progress,
        )
        for label, run in labelled.items()
    }
    return Comparison(
        evaluations=evaluations,
        differences=_differences(evaluations),
        paths={label: run.path for label, run in labelled.items()},
    )


def _check_same_dataset(runs: Sequence[Run]) -> None:
    """Held-out parts that differ give numbers that differ, whatever the models are worth."""
    first = runs[0]
    for run in runs[1:]:
        ours, theirs = first.config.dataset, run.config.dataset
        if ours.digest != theirs.digest:
            raise SettingError(
                f"{first.path} and {run.path} were trained on different datasets, {ours.path} and "
                f"{theirs.path}, so their numbers do not compare; train both on one dataset, or "
                "measure each alone with foretaste evaluate"
            )


def _differences(evaluations: dict[str, Evaluation]) -> dict[str, dict[str, Difference]]:
    (_, first), *others = evaluations.items()
    return {label: compare_evaluations(first, second) for label, second in others}


def _difference_fields(difference: Difference | None) -> dict[str, float | None]:
    return {
        "difference": None if difference is None else difference.value,
        "difference_low": None if difference is None else difference.low,
        "difference_high": None if difference is None else difference.high,
    }


def _labels(runs: Sequence[Run]) -> list[str]:
    """The model of each run where that tells them apart, numbered where it does not."""
    models = [run.config.model for run in runs]
    return [
        model if models.count(model) == 1 else f"{model} {models[:number].count(model) + 1}"
        for number, model in enumerate(models)
    ]

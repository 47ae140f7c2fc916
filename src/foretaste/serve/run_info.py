"""The response of `/v1/run`: settings, curves, metrics and throughput of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from foretaste.runs.log import final_evaluation, summary_of
from foretaste.runs.run import Run
from foretaste.serve.schemas import FromModel


class MetricInfo(BaseModel):
    """One metric, with its 95 % interval over users if one is defined."""

    name: str
    value: float
    low: float | None
    high: float | None


class EvaluationInfo(BaseModel):
    """Metrics of one held-out part, with its protocol and candidates."""

    epoch: int | None
    split: str
    protocol: str
    candidates: str
    num_users: int
    metrics: list[MetricInfo]


class EpochInfo(BaseModel):
    """One epoch."""

    epoch: int
    loss: float | None
    train_s: float
    samples_per_s: float | None


class DatasetInfo(BaseModel):
    """The dataset that a run was trained on."""

    name: str
    digest: str
    protocol: str
    num_users: int
    num_train_users: int
    num_items: int


class SummaryInfo(BaseModel):
    """The end of a training, with its times."""

    num_epochs: int
    best_epoch: int | None
    select_by: str | None
    stopped_because: str
    train_s: float
    samples_per_s: float | None
    evaluated_users_per_s: float | None
    memory_mib: float | None


class RunResponse(FromModel):
    """A training: settings, curves and metrics at the time when the run was loaded."""

    kind: str
    created: Annotated[str, Field(description="Time in UTC, ISO 8601.")]
    dataset: DatasetInfo
    model_settings: Annotated[
        dict[str, Any], Field(description="Settings of the model, with auto resolved if recorded.")
    ]
    training_settings: Annotated[
        dict[str, Any], Field(description="Settings of the training, with auto resolved.")
    ]
    versions: dict[str, str]
    hardware: dict[str, Any]
    epochs: list[EpochInfo]
    evaluations: Annotated[list[EvaluationInfo], Field(description="All evaluations, in order.")]
    metrics: Annotated[
        EvaluationInfo | None,
        Field(description="Metrics of the loaded weights; none before the training has ended."),
    ]
    summary: Annotated[SummaryInfo | None, Field(description="None before the training has ended.")]


def run_info(run: Run) -> dict[str, Any]:
    """The fields of a `RunResponse`, from the directory of a run; RunError if it is torn."""
    config, events = run.config, run.log.read()
    by_kind: dict[str, list[Mapping[str, Any]]] = {"epoch": [], "evaluation": []}
    for event in events:
        by_kind.get(event["event"], []).append(event)
    final = final_evaluation(events)
    evaluations = [_evaluation(one["epoch"], one["evaluation"]) for one in by_kind["evaluation"]]
    summary = summary_of(events)
    best_epoch = summary["best_epoch"] if summary else None
    return {
        "kind": config.model,
        "created": config.created,
        "dataset": {name: getattr(config.dataset, name) for name in DatasetInfo.model_fields},
        "model_settings": {
            name: config.resolved.get(name, value) for name, value in config.model_config.items()
        },
        "training_settings": config.resolved,
        "versions": config.versions,
        "hardware": config.hardware,
        "epochs": [_named(EpochInfo, epoch) for epoch in by_kind["epoch"]],
        "evaluations": evaluations,
        "metrics": final and _evaluation(best_epoch, final.as_dict()),
        "summary": summary and _named(SummaryInfo, summary),
    }


def _evaluation(epoch: int | None, found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("split", "protocol", "candidates", "num_users")
    metrics = [*found["metrics"].values()]
    return {"epoch": epoch, **{name: found[name] for name in names}, "metrics": metrics}


def _named(kind: type[EpochInfo] | type[SummaryInfo], event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``kind`` from an event; None for absent ones."""
    return {name: event.get(name) for name in kind.model_fields}

"""Quality of every model on real data: rows for docs/results.md.

    python -m benchmarks.quality --data DIRECTORY --datasets ml-1m --protocols leave-one-out

DIRECTORY holds ``ml-100k/ratings.csv`` and ``ml-1m/ratings.parquet``. Each row is one training:
settings, metrics on the test part with their intervals, times and versions. Rows already in the
output are not run again, so an interrupted session continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import foretaste
from foretaste.data import Dataset, open_dataset, prepare
from foretaste.evaluation.evaluator import evaluate
from foretaste.runs import Run, load_model
from foretaste.training import TrainRequest, train_run

SOURCES = {"ml-100k": "ml-100k/ratings.csv", "ml-1m": "ml-1m/ratings.parquet"}
TOWER = (128, 64, 32)
SMALL: dict[str, Any] = {
    "neumf": foretaste.NeuMFConfig(factors=32, layers=TOWER),
    "mlp": foretaste.MLPConfig(layers=TOWER),
}
MODELS = (
    *("popularity", "ease", "itemknn", "rp3beta", "ials"),
    *("gmf", "mlp", "neumf", "dae", "vae", "recvae"),
)
NVIDIA_SETTINGS: dict[str, Any] = {
    "batch_size": 1_048_576,
    "learning_rate": 0.0045,
    "beta1": 0.25,
    "beta2": 0.5,
    "epochs": 30,
    "patience": 0,
}
SEEDLESS = ("popularity", "ease", "itemknn", "rp3beta")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training: a model with settings on a dataset."""

    dataset: str
    protocol: str
    model: str
    seed: int
    name: str
    candidates: str = "full"
    validation: str = "hold-out"
    also: tuple[str, ...] = ()
    config: Any = None
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.dataset, self.protocol, self.name, self.seed


def trials(
    datasets: list[str], protocols: list[str], seeds: list[int], models: list[str]
) -> Iterator[Trial]:
    """Every model, then NeuMF like its paper and like NVIDIA measured it."""
    for dataset in datasets:
        for protocol in protocols:
            if protocol == "ncf":
                yield from _paper_trials(dataset, seeds)
                continue
            if protocol == "nvidia":
                yield from _nvidia_trials(dataset, seeds)
                continue
            also = ("sampled-99",) if protocol == "leave-one-out" else ()
            for model in models:
                for seed in seeds[:1] if model in SEEDLESS else seeds:
                    yield Trial(
                        dataset=dataset,
                        protocol=protocol,
                        model=model,
                        seed=seed,
                        name=model,
                        also=also,
                        config=SMALL.get(model),
                    )


def _paper_trials(dataset: str, seeds: list[int]) -> Iterator[Trial]:
    """The NCF protocol: no validation part, 99 negatives, the best epoch on test."""
    cases = [
        *((model, model, None, seeds[:1]) for model in SEEDLESS),
        ("neumf", "neumf", SMALL["neumf"], seeds),
        ("neumf", "neumf (NVIDIA's sizes)", None, seeds[:1]),
    ]
    for model, name, config, chosen in cases:
        for seed in chosen:
            yield Trial(
                dataset=dataset,
                protocol="ncf",
                model=model,
                seed=seed,
                name=name,
                candidates="sampled-99",
                validation="none",
                config=config,
            )


def _nvidia_trials(dataset: str, seeds: list[int]) -> Iterator[Trial]:
    """NVIDIA's protocol: the NCF one with 100 negatives drawn with replacement, HR@10 deciding."""
    for name, settings in (("NVIDIA's settings", NVIDIA_SETTINGS), ("our defaults", {})):
        for seed in seeds:
            yield Trial(
                dataset=dataset,
                protocol="nvidia",
                model="neumf",
                seed=seed,
                name=name,
                candidates="nvidia-100",
                validation="none",
                also=("sampled-100", "full"),
                training={"precision": "bf16", "select_by": "hr@10", **settings},
            )


def run(trial: Trial, data: Path, work: Path) -> dict[str, Any]:
    """Train and evaluate one trial; return its row."""
    dataset = _prepared(trial, data, work)
    run_path = work / "-".join(map(str, trial.key)).replace("/", "-").replace(" ", "-")
    request = TrainRequest.of(
        trial.model,
        dataset,
        model_config=trial.config,
        config=foretaste.TrainingConfig(
            seed=trial.seed, candidates=trial.candidates, device="cpu", **trial.training
        ),
        run=run_path,
    )
    trained = train_run(request)
    events = trained.log.read()
    summary = next(event for event in events if event["event"] == "summary")
    tested = [event for event in events if event["event"] == "evaluation"][-1]
    evaluations = {trial.candidates: tested["evaluation"]["metrics"]}
    for candidates in trial.also:
        evaluations[candidates] = _evaluated(trained, dataset, candidates)
    return {
        **{name: value for name, value in asdict(trial).items() if name not in ("config", "also")},
        "model_config": dict(trained.config.model_config),
        "resolved": dict(trained.config.resolved),
        "metrics": {
            candidates: {name: metric["value"] for name, metric in metrics.items()}
            for candidates, metrics in evaluations.items()
        },
        "best_epoch": summary["best_epoch"],
        "num_epochs": summary["num_epochs"],
        "avg_epoch_s": summary["avg_epoch_s"],
        "num_threads": torch.get_num_threads(),
        "commit": _commit(),
        "versions": dict(trained.config.versions),
    }


def _prepared(trial: Trial, data: Path, work: Path) -> Dataset:
    path = work / f"{trial.dataset}-{trial.protocol}"
    if path.exists():
        return open_dataset(path)
    protocol: Any = "leave-one-out" if trial.validation == "none" else trial.protocol
    validation: Any = trial.validation
    # The reference's filters under held-out-users would leave unseen targets out.
    filters: Any = {"filters": "reference"}
    if protocol == "held-out-users":
        filters = {"min_rating": 4, "min_user_interactions": 5}
    config = foretaste.PrepareConfig(protocol=protocol, validation=validation, **filters)
    return prepare(data / SOURCES[trial.dataset], path, config)


def _evaluated(run: Run, dataset: Dataset, candidates: str) -> dict[str, Any]:
    evaluation = evaluate(
        load_model(run, "cpu"), dataset.heldout("test"), candidates=candidates, k=(10,)
    )
    metrics: dict[str, Any] = evaluation.as_dict()["metrics"]
    return metrics


COLUMNS = {
    "leave-one-out": [
        ("full", "hr@10"),
        ("full", "ndcg@10"),
        ("full", "ndcg@100"),
        ("sampled-99", "hr@10"),
        ("sampled-99", "ndcg@10"),
    ],
    "held-out-users": [
        ("full", "recall@20"),
        ("full", "recall@50"),
        ("full", "ndcg@10"),
        ("full", "ndcg@100"),
    ],
    "ncf": [("sampled-99", "hr@10"), ("sampled-99", "ndcg@10")],
    "nvidia": [
        (candidates, metric)
        for candidates in ("nvidia-100", "sampled-100", "full")
        for metric in ("hr@10", "ndcg@10")
    ],
}


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: a table for each dataset and protocol, mean and range over seeds."""
    grouped: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        models = grouped.setdefault((row["dataset"], row["protocol"]), {})
        models.setdefault(row["name"], []).append(row)
    parts = []
    for (dataset, protocol), models in sorted(grouped.items()):
        columns = COLUMNS[protocol]
        heads = [f"{name} ({candidates})" for candidates, name in columns]
        parts += [f"### {dataset}, {protocol}", ""]
        parts.append("| " + " | ".join(["model", "seeds", *heads, "best epoch"]) + " |")
        parts.append("|---|" + "---:|" * (len(heads) + 2))
        parts += [_table_line(name, found, columns) for name, found in models.items()]
        parts.append("")
    return "\n".join(parts)


def _table_line(name: str, rows: list[dict[str, Any]], columns: list[tuple[str, str]]) -> str:
    cells = [name, str(len(rows))]
    for candidates, metric in columns:
        cells.append(_mean_and_range([row["metrics"][candidates][metric] for row in rows]))
    epochs = [row["best_epoch"] for row in rows if row["best_epoch"] is not None]
    cells.append("–".join(map(str, sorted({min(epochs), max(epochs)}))) if epochs else "")
    return "| " + " | ".join(cells) + " |"


def _mean_and_range(values: list[float]) -> str:
    text = f"{statistics.fmean(values):.4f}"
    if len(values) > 1:
        text += f" ({min(values):.4f}–{max(values):.4f})"
    return text


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--tables", action="store_true", help="print what was found, run nothing")
    parser.add_argument("--datasets", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--protocols", nargs="+", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/quality.jsonl"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.touch()
    rows = [json.loads(line) for line in arguments.output.read_text().splitlines()]
    if arguments.tables:
        print(tables(rows))
        return
    done = {(row["dataset"], row["protocol"], row["name"], row["seed"]) for row in rows}
    asked = arguments.datasets, arguments.protocols, arguments.seeds, arguments.models
    with tempfile.TemporaryDirectory() as work:
        for trial in trials(*asked):
            if trial.key in done:
                continue
            row = run(trial, arguments.data, Path(work))
            with arguments.output.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(*trial.key, row["metrics"][trial.candidates], flush=True)


if __name__ == "__main__":
    main()

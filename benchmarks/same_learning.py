"""Quality of ours and of the plain loop compared: paired over seeds, at equal batches and epochs.

    python -m benchmarks.same_learning neumf --data DIRECTORY --seeds 1 2 3 4 5 6
    python -m benchmarks.same_learning vae --data DIRECTORY
    python -m benchmarks.same_learning sampled --data DIRECTORY --seeds 1 2 3

neumf: ml-1m, last interaction out, HR@10 among 99 sampled negatives after the last epoch, for both
batch layouts in fp32, and in bf16. vae: ml-1m, held-out users, NDCG@100 over the catalogue, in fp32
and bf16; the plain loop is always fp32. sampled: the same on
lastfm, whose catalogue is larger, with the exact loss and with sampled softmax. Each row holds
one seed's numbers; `--tables` prints the paired differences with 95 % intervals over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import foretaste
from benchmarks.plain_neumf import PlainNeuMFTraining, drawn_samples
from benchmarks.plain_vae import PlainVAETraining
from foretaste.data import Dataset, prepare
from foretaste.evaluation.evaluator import evaluate
from foretaste.models.config import TrainingSize
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.model import MultVAE
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import load_model
from foretaste.training.auto import TrainingPlan, resolve

NEUMF = foretaste.NeuMFConfig(factors=32, layers=(128, 64, 32), negatives=4)
VAE = foretaste.VAEConfig()
SOURCES = {
    "neumf": "ml-1m/ratings.parquet",
    "vae": "ml-1m/ratings.parquet",
    "sampled": "lastfm/plays.csv",
}
EPOCHS = {"neumf": 12, "vae": 40, "sampled": 40}
BATCH_SIZE = {"neumf": 32_768, "vae": 500, "sampled": 100}
LEARNING_RATE = {"neumf": 0.002, "vae": 0.001, "sampled": 0.001}
NUM_SAMPLED = (100, 1_000)
STUDENT_95 = dict(
    zip(range(2, 11), (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262), strict=True)
)
"""Two-sided 95 % points of Student's t by number of seeds."""


def trained(
    kind: str, dataset: Dataset, seed: int, path: Path, precision: str = "fp32", **settings: Any
) -> nn.Module:
    """Trained by foretaste for all epochs; the weights of the last."""
    model_config: Any = replace(NEUMF if kind == "neumf" else VAE, **settings)
    run = foretaste.train(
        "neumf" if kind == "neumf" else "vae",
        dataset,
        model_config=model_config,
        config=_training_config(kind, seed, precision),
        run=path,
    )
    return load_model(run, "cpu")


def plain_neumf(dataset: Dataset, seed: int) -> nn.Module:
    """Trained by the plain loop, fresh negatives and order every epoch."""
    histories = _histories(dataset)
    training = PlainNeuMFTraining(NEUMF, histories, _plan("neumf", seed), chunk=1 << 14)
    for epoch in range(EPOCHS["neumf"]):
        drawn = drawn_samples(histories, NEUMF.num_negatives, seed * 1000 + epoch)
        training.user_S, training.item_S, training.label_S = drawn
        training.epoch()
    model = NeuMF(NEUMF, len(histories), histories.num_items)
    with torch.no_grad():
        for parameter, ours in training.model.beside(model):
            ours.copy_(parameter)
    return model


def plain_vae(dataset: Dataset, seed: int) -> nn.Module:
    """Trained by the plain loop on dense rows."""
    histories = _histories(dataset)
    training = PlainVAETraining(VAE, histories, _plan("vae", seed))
    for _ in range(EPOCHS["vae"]):
        training.epoch()
    model = MultVAE(VAE, len(histories), histories.num_items)
    with torch.no_grad():
        for parameter, ours in training.model.beside(model):
            ours.copy_(parameter)
    return model


def evaluated(kind: str, model: nn.Module, dataset: Dataset) -> float:
    """HR@10 of NeuMF, NDCG@100 of Mult-VAE, on the test part."""
    length, metric = (10, "hr@10") if kind == "neumf" else (100, "ndcg@100")
    evaluation = evaluate(
        model,  # type: ignore[arg-type]
        dataset.heldout("test"),
        candidates="sampled-99" if kind == "neumf" else "full",
        k=(length,),
    )
    return evaluation[metric]


def sides(kind: str, dataset: Dataset, seed: int, work: Path) -> dict[str, Callable[[], nn.Module]]:
    """The sides compared, each ready to be trained."""
    if kind == "sampled":
        return {
            name: partial(
                trained, kind, dataset, seed, work / f"{name}-{seed}", sampled_softmax=size
            )
            for name, size in (("exact", None), *((f"{n} sampled", n) for n in NUM_SAMPLED))
        }
    if kind == "vae":
        return {
            "plain": partial(plain_vae, dataset, seed),
            **{
                precision: partial(
                    trained, kind, dataset, seed, work / f"{precision}-{seed}", precision
                )
                for precision in ("fp32", "bf16")
            },
        }
    return {
        "plain": partial(plain_neumf, dataset, seed),
        **{
            layout: partial(
                trained, kind, dataset, seed, work / f"{layout}-{seed}", batch_layout=layout
            )
            for layout in ("grouped", "shuffled")
        },
        "bf16": partial(trained, kind, dataset, seed, work / f"bf16-{seed}", "bf16"),
    }


def _plan(kind: str, seed: int) -> TrainingPlan:
    size = TrainingSize(num_interactions=1, num_users=1, num_items=1, protocol="none")
    config = _training_config(kind, seed, "fp32")
    return resolve(config, MultVAE, size, model_config=VAE, device="cpu")


def _training_config(kind: str, seed: int, precision: Any) -> foretaste.TrainingConfig:
    return foretaste.TrainingConfig(
        precision=precision,
        epochs=EPOCHS[kind],
        batch_size=BATCH_SIZE[kind],
        learning_rate=LEARNING_RATE[kind],
        beta1=0.9,
        beta2=0.999,
        eval_every=EPOCHS[kind],
        patience=0,
        seed=seed,
        device="cpu",
        candidates="sampled-99" if kind == "neumf" else "full",
    )


def _histories(dataset: Dataset) -> HistoryTensors:
    train = dataset.train
    return HistoryTensors.from_numpy(train.offsets, train.item_index, train.num_items, "cpu")


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: means, and the paired difference to the first side."""
    lines = [
        "| model | side | seeds | mean | difference to the first | 95 % interval |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for kind in dict.fromkeys(row["model"] for row in rows):
        found = [row for row in rows if row["model"] == kind]
        for side in found[0]["values"]:
            values = [row["values"][side] for row in found]
            gains = [row["values"][side] - next(iter(row["values"].values())) for row in found]
            line = f"| {kind} | {side} | {len(found)} | {statistics.fmean(values):.4f} |"
            if side == next(iter(found[0]["values"])) or len(found) < 2:
                lines.append(line + " | |")
                continue
            mean = statistics.fmean(gains)
            half = STUDENT_95[len(found)] * statistics.stdev(gains) / len(found) ** 0.5
            lines.append(f"{line} {mean:+.4f} | {mean - half:+.4f} to {mean + half:+.4f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=list(SOURCES))
    parser.add_argument("--data", type=Path, help="holds ml-1m and lastfm")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/learning.jsonl"))
    parser.add_argument("--tables", action="store_true", help="print what was found, run nothing")
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables([json.loads(line) for line in arguments.output.read_text().splitlines()]))
        return
    protocol: Any = "leave-one-out" if arguments.kind == "neumf" else "held-out-users"
    config = foretaste.PrepareConfig(protocol=protocol, validation="none", filters="reference")
    if arguments.kind != "neumf":
        config = foretaste.PrepareConfig(
            protocol=protocol, filters="reference", unseen_targets="keep"
        )
    with tempfile.TemporaryDirectory() as work:
        source = arguments.data / SOURCES[arguments.kind]
        dataset = prepare(source, Path(work) / "dataset", config)
        for seed in arguments.seeds:
            models = sides(arguments.kind, dataset, seed, Path(work))
            values = {}
            for side, make in models.items():
                values[side] = evaluated(arguments.kind, make(), dataset)
                print(arguments.kind, seed, side, values[side], flush=True)
            row = {
                "model": arguments.kind,
                "seed": seed,
                "values": values,
                "epochs": EPOCHS[arguments.kind],
                "batch_size": BATCH_SIZE[arguments.kind],
                "learning_rate": LEARNING_RATE[arguments.kind],
                "torch": torch.__version__,
            }
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            with arguments.output.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

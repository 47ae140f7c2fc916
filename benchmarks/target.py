"""Time to a target: seconds of training until a metric reaches a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks.command import run
from foretaste._util.settings import Count, Range
from foretaste.bench.config import BenchConfig
from foretaste.bench.measure import PeakMemory
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.bench.train import Training
from foretaste.data.dataset import HeldOut, open_dataset
from foretaste.data.histories import Histories
from foretaste.errors import SettingError
from foretaste.evaluation.config import parse_metric
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.result import Evaluation
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.training.callbacks import EpochReport
from foretaste.training.config import Precision

_CLOCK = "training epochs until the target is met; generating, building and evaluation outside"


@dataclass(frozen=True, kw_only=True)
class Target(BenchConfig):
    """Options of the time to a target."""

    target: Annotated[float, Range(above=0, at_most=1)] = 0.3
    """Value of the metric to reach."""

    select_by: str = "hr@10"
    """Metric of the target."""

    candidates: str = "full"
    """Candidates that held-out items are ranked against: full, sampled-N or nvidia-N."""

    max_epochs: Count = 40
    """Epochs after which the benchmark gives up on the target."""

    precision: Precision = "fp32"
    """Precision of the training."""

    batch_size: Count | None = None
    """Samples (neumf) or users (vae) per update; a hundredth of an epoch unless given."""

    dataset: Path | None = None
    """Prepared dataset; unless given, an item of each generated user is held out."""


NAME = "train-target"
OPTIONS = dict.fromkeys(("neumf", "vae"), Target)


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Training histories and the part held out of them."""

    train: Histories
    heldout: HeldOut


def measure(session: Session, options: Target) -> None:
    """Measure one row: epochs and seconds until the target, or until giving up."""
    if options.dataset is None:
        split = hold_one_out(session.histories(), options.seed)
    else:
        split = _split_of(options.dataset)
    num_samples = split.train.num_users
    if isinstance(session.model, NeuMFConfig):
        num_samples = split.train.num_interactions * (1 + session.model.num_negatives)
    # The reference's batch is for data of its size.
    plan = session.plan(
        options.precision,
        options.batch_size or max(1, num_samples // 100),
        options.max_epochs,
        target=options.target,
        select_by=options.select_by,
        candidates=options.candidates,
    )
    session.log(f"training until {options.select_by} reaches {options.target}")
    memory = PeakMemory(session.device)
    training = Training(session, split.train, plan)
    reports: list[EpochReport] = []

    def evaluate_epoch() -> Evaluation:
        return evaluate(
            training.model,
            split.heldout,
            candidates=plan.candidates,
            k=(parse_metric(plan.select_by)[1],),
        )

    clock = training.run(reports.append, evaluate_epoch)
    values = [report.evaluation[plan.select_by] for report in reports if report.evaluation]
    case = {
        "precision": plan.precision,
        "batch_size": plan.batch_size,
        "target": plan.target,
        "metric": plan.select_by,
        "candidates": plan.candidates,
        "protocol": f"{split.heldout.protocol}, {split.heldout.split}",
    }
    numbers: dict[str, Any] = {
        "reached": values[-1] >= options.target,
        "epochs": len(reports),
        "train_s": sum(clock.epoch_s),
        "evaluate_s": sum(clock.evaluate_s.values()),
        "first_epoch_s": clock.epoch_s[0],
        "best_value": max(values),
        "values": values,
        **memory.as_numbers(),
    }
    shape = None if options.dataset is None else {"dataset": options.dataset.name}
    session.add(OURS, case, _CLOCK, numbers, shape=shape)


def _split_of(path: Path) -> Split:
    dataset = open_dataset(path)
    split = "validation" if dataset.has_split("validation") else "test"
    if not dataset.has_split(split):  # type: ignore[arg-type]
        raise SettingError(
            f"dataset {path} holds nothing out ({dataset.manifest.protocol}), so no "
            "target can be reached; prepare it with another protocol"
        )
    return Split(train=dataset.train, heldout=dataset.heldout(split))  # type: ignore[arg-type]


def hold_one_out(histories: Histories, seed: int) -> Split:
    """Hold out one random item of each user with two or more."""
    lengths = histories.lengths()
    users = np.flatnonzero(lengths >= 2)
    drawn = np.random.default_rng(seed).random(len(users)) * lengths[users]
    position = histories.offsets[users] + drawn.astype(np.int64)
    kept = np.ones(histories.num_interactions, dtype=bool)
    kept[position] = False
    train = Histories.from_pairs(
        histories.row_index()[kept],
        histories.item_index[kept],
        num_users=histories.num_users,
        num_items=histories.num_items,
    )
    target = Histories(
        offsets=np.arange(len(users) + 1, dtype=np.int64),
        item_index=histories.item_index[position],
        num_items=histories.num_items,
    )
    known = train.rows(users)
    heldout = HeldOut(
        split="test",
        protocol="leave-one-out (random)",
        seed=seed,
        num_train_users=histories.num_users,
        num_train_items=histories.num_items,
        user_index=users.astype(np.int32),
        history=known,
        known=known,
        target=target,
    )
    return Split(train=train, heldout=heldout)


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)

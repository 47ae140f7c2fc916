"""Time to a target: how long training takes until a metric reaches a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from foretaste.bench.config import TrainBench
from foretaste.bench.memory import PeakMemory
from foretaste.bench.rows import OURS, Recorder, Row
from foretaste.bench.subject import OurTraining, Subject
from foretaste.data.dataset import HeldOut, open_dataset
from foretaste.data.histories import Histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.errors import SettingError
from foretaste.evaluation.definitions import parse_metric
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation
from foretaste.models.base import RecommenderModel
from foretaste.training.progress import EpochReport

_CLOCK = "training epochs until the target is met; generating, building and evaluation outside"


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """Training histories and what is held out of them."""

    train: Histories
    heldout: HeldOut
    num_train_users: int
    protocol: str
    seed: int

    def evaluate(self, model: RecommenderModel, select_by: str, candidates: str) -> Evaluation:
        """The selected metric, over every held-out user."""
        return evaluate(
            model,
            self.heldout,
            num_train_users=self.num_train_users,
            protocol=self.protocol,
            candidates=candidates,
            k=(parse_metric(select_by)[1],),
            seed=self.seed,
        )


def bench_target(
    subject: Subject,
    options: TrainBench,
    histories: Histories,
    shape: GenerateConfig,
    recorder: Recorder,
    device: torch.device,
) -> Row:
    """Train until ``options.target``, in the first of the precisions and batch sizes asked for."""
    judged = _judged(options, histories)
    batch_size = options.batch_size[0] if options.batch_size else _small_batch(subject, judged)
    plan = subject.plan(
        options.precision[0],
        batch_size,
        options.max_epochs,
        options.seed,
        device,
        target=options.target,
        select_by=options.select_by,
        candidates=options.candidates,
    )
    recorder.tell(f"training until {options.select_by} reaches {options.target}")
    memory = PeakMemory(device)
    model = subject.build(judged.train, device, options.seed)
    training = OurTraining(subject, model, to_device(judged.train, device), plan)
    reports: list[EpochReport] = []
    judge = partial(judged.evaluate, model, plan.select_by, plan.candidates)
    clock = training.run(reports.append, judge)
    values = [report.evaluation[plan.select_by] for report in reports if report.evaluation]
    reached = values[-1] >= (plan.target or 0.0)
    case = {
        "precision": plan.precision,
        "batch_size": plan.batch_size,
        "target": plan.target,
        "metric": plan.select_by,
        "candidates": plan.candidates,
        "protocol": judged.protocol,
    }
    numbers: dict[str, Any] = {
        "reached": reached,
        "epochs": len(reports),
        "train_s": sum(clock.epoch_s),
        "evaluate_s": sum(clock.evaluate_s.values()),
        "first_epoch_s": clock.epoch_s[0],
        "best_value": max(values),
        "values": values,
        "peak_memory_mib": memory.rise_mib(),
        "peak_memory_is": memory.meaning,
    }
    described: Any = shape if options.dataset is None else {"dataset": options.dataset.name}
    return recorder.add(OURS, case, _CLOCK, numbers, shape=described, benchmark="train-target")


def _small_batch(subject: Subject, judged: Judged) -> int:
    """About a hundred updates an epoch: the reference's batch is for data of its size."""
    num_samples = judged.train.num_users
    if subject.sampling is not None:
        num_samples = judged.train.num_interactions * (1 + subject.sampling.negatives)
    return max(1, num_samples // 100)


def _judged(options: TrainBench, histories: Histories) -> Judged:
    if options.dataset is None:
        return hold_one_out(histories, options.seed)
    dataset = open_dataset(options.dataset)
    split = "validation" if dataset.has_split("validation") else "test"
    if not dataset.has_split(split):  # type: ignore[arg-type]
        raise SettingError(
            f"dataset {options.dataset} holds nothing out ({dataset.manifest.protocol}), so no "
            "target can be judged; prepare it with another protocol"
        )
    manifest = dataset.manifest
    return Judged(
        train=dataset.train,
        heldout=dataset.heldout(split),  # type: ignore[arg-type]
        num_train_users=manifest.num_train_users,
        protocol=f"{manifest.protocol}, {split}",
        seed=manifest.seed,
    )


def hold_one_out(histories: Histories, seed: int) -> Judged:
    """One item of each user with two or more is held out, chosen by chance."""
    lengths = histories.lengths()
    users = np.flatnonzero(lengths >= 2)
    drawn = np.random.default_rng(seed).random(len(users)) * lengths[users]
    place = histories.offsets[users] + drawn.astype(np.int64)
    kept = np.ones(histories.num_interactions, dtype=bool)
    kept[place] = False
    train = Histories.from_pairs(
        histories.row_index()[kept],
        histories.item_index[kept],
        num_users=histories.num_users,
        num_items=histories.num_items,
    )
    target = Histories(
        offsets=np.arange(len(users) + 1, dtype=np.int64),
        item_index=histories.item_index[place],
        num_items=histories.num_items,
    )
    known = train.rows(users)
    heldout = HeldOut(
        split="test",
        user_index=users.astype(np.int32),
        history=known,
        known=known,
        target=target,
    )
    return Judged(
        train=train,
        heldout=heldout,
        num_train_users=histories.num_users,
        protocol="leave-one-out (random)",
        seed=seed,
    )

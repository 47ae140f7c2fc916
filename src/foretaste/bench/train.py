"""``bench train``: throughput and time per epoch by precision and batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretaste.bench.config import TrainBench
from foretaste.bench.measure import PeakMemory, Spread, timed
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation
from foretaste.training.auto import TrainingPlan
from foretaste.training.callbacks import Callback, EpochReport
from foretaste.training.loop import fit
from foretaste.training.state import Clock, TrainingState
from foretaste.training.trainer import make_batches, make_step

_BATCH_SIZES = {
    ("neumf", "cuda"): 1 << 20,
    ("neumf", "cpu"): 1 << 16,
    ("vae", "cuda"): 24_576,
    ("vae", "cpu"): 500,
}

CLOCKS = {
    "neumf": "an epoch: negatives drawn, order, batches, forward, backward, Adam",
    "vae": "an epoch: order, batches, forward, backward, Adam",
}


def bench_train(session: Session, options: TrainBench) -> None:
    """Measure training on generated data."""
    for part, plan in training_cases(session, options):
        case, measured = measure_training(session, part, plan, options.warmup)
        session.add(OURS, case, CLOCKS[session.name], measured.as_numbers(session.unit))


def training_cases(
    session: Session, options: TrainBench
) -> Iterator[tuple[Histories, TrainingPlan]]:
    """Data and plan of each batch size and precision, one after the other."""
    histories = session.histories()
    for batch_size in options.batch_size or (default_batch_size(session),):
        part = needed_part(session, histories, batch_size, options.steps)
        for precision in options.precision:
            session.log(f"training in {precision}, {batch_size:,} {session.unit} a batch")
            epochs = options.warmup + options.repeats
            yield part, session.plan(precision, batch_size, epochs, compile=options.compile)


def default_batch_size(session: Session) -> int:
    """The reference's batch on a GPU, one that suits two cores on a CPU."""
    return _BATCH_SIZES[session.name, session.device.type]


def needed_part(
    session: Session, histories: Histories, batch_size: int, steps: int | None
) -> Histories:
    """As much of the data as ``steps`` updates take; everything for None."""
    sampling, seed = session.sampling, session.options.seed
    if steps is None:
        return histories
    if sampling is None:
        return keep_users(histories, steps * batch_size, seed)
    per_row = 1 + sampling.negatives
    grouped = sampling.batch_layout == "grouped"
    rows_per_batch = max(1, batch_size // per_row) if grouped else math.ceil(batch_size / per_row)
    return keep_interactions(histories, steps * rows_per_batch, seed)


def keep_interactions(histories: Histories, num_interactions: int, seed: int) -> Histories:
    """So many interactions, those of users chosen by chance; the others' rows are empty.

    Users keep their numbers, so a model for all of them trains on part of the data: a short epoch
    with tables of full size. The last user chosen may lose the end of a history.
    """
    if num_interactions >= histories.num_interactions:
        return histories
    lengths = histories.lengths()
    order = np.random.default_rng(seed).permutation(histories.num_users)
    room = num_interactions - (np.cumsum(lengths[order]) - lengths[order])
    kept = np.zeros_like(lengths)
    kept[order] = np.clip(room, 0, lengths[order])
    position = np.arange(histories.num_interactions) - np.repeat(histories.offsets[:-1], lengths)
    return Histories(
        offsets=np.concatenate(([0], np.cumsum(kept))),
        item_index=histories.item_index[position < np.repeat(kept, lengths)],
        num_items=histories.num_items,
    )


def keep_users(histories: Histories, num_users: int, seed: int) -> Histories:
    """The histories of so many users chosen by chance, all of them where there are fewer."""
    if num_users >= histories.num_users:
        return histories
    chosen = np.random.default_rng(seed).permutation(histories.num_users)[:num_users]
    return histories.rows(np.sort(chosen))


@dataclass
class Epochs:
    """Times and memory of one side's epochs."""

    num_samples: int = 0
    """Samples or users of an epoch."""
    seconds: list[float] = field(default_factory=list)
    """Of each epoch that counts."""
    compile_s: float = 0.0
    """Kernels, and the loss if it is to be, before the first epoch."""
    warmup_s: float = 0.0
    """Epochs before those that count."""
    build_s: float = 0.0
    """Tables and optimizer made, data indexed."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Peak until the end of the first epoch."""

    def add(self, seconds: float, is_warmup: bool, memory: dict[str, Any]) -> None:
        """Count one more epoch; of the memory, that of the first."""
        self.memory = self.memory or memory
        if is_warmup:
            self.warmup_s += seconds
        else:
            self.seconds.append(seconds)

    def as_numbers(self, unit: str) -> dict[str, Any]:
        """The same as a row has it."""
        seconds = Spread.of(self.seconds)
        return {
            f"{unit}_per_s": seconds.per_second(self.num_samples).as_dict(),
            "epoch_s": seconds.as_dict(),
            f"epoch_{unit}": self.num_samples,
            "compile_s": self.compile_s,
            "warmup_s": self.warmup_s,
            "build_s": self.build_s,
            **self.memory,
        }


def measure_training(
    session: Session,
    histories: Histories,
    plan: TrainingPlan,
    num_warmup: int,
    after_epoch: Callable[[bool], None] = lambda _: None,
) -> tuple[dict[str, Any], Epochs]:
    """Train the epochs of a plan; the case, as a row describes it, and the times.

    ``after_epoch`` is called between them, with True in the warm-up.
    """
    epochs, memory = Epochs(), PeakMemory(session.device)
    built: list[Training] = []
    epochs.build_s = timed(lambda: built.append(Training(session, histories, plan)), session.device)
    (training,) = built
    batches = training.batches
    epochs.num_samples = batches.num_samples

    def count(report: EpochReport) -> None:
        is_warmup = report.epoch <= num_warmup
        epochs.add(report.train_s, is_warmup, memory.as_numbers())
        after_epoch(is_warmup)

    epochs.compile_s = training.run(count).compile_s
    case = {
        "precision": plan.precision,
        "batch_size": plan.batch_size,
        "updates": batches.num_batches,
        **({"compiled": True} if plan.compile else {}),
    }
    return case, epochs


class Training:
    """The project's training: its batches, model, optimizer and loop."""

    def __init__(self, session: Session, histories: Histories, plan: TrainingPlan) -> None:
        self.plan = plan
        self.model = session.build(histories)
        tensors = to_device(histories, session.device)
        self.batches = make_batches(self.model, tensors, session.sampling, plan)
        self.step = make_step(self.model, self.batches, plan)

    def run(
        self,
        after_epoch: Callable[[EpochReport], None],
        evaluate: Callable[[], Evaluation] | None = None,
    ) -> Clock:
        """Train the plan's epochs; each is reported once the device has finished it."""

        class Reporting(Callback):
            def epoch_done(self, report: EpochReport) -> None:
                after_epoch(report)

        state = TrainingState.begin(
            self.plan,
            num_steps_per_epoch=self.batches.num_batches,
            num_samples=self.batches.num_samples,
            device=self.model.device,
        )
        fit(
            self.step,
            self.batches,
            state,
            evaluate=evaluate,
            keep=lambda: None,
            checkpoint=lambda: None,
            callback=Reporting(),
        )
        return state.clock

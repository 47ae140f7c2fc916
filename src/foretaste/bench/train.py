"""``bench train``: throughput and time per epoch by precision and batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from foretaste._util.documents import Document
from foretaste.bench.config import TrainBench
from foretaste.bench.measure import PeakMemory, Spread, time_call
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.distributed.collectives import ALONE, Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.evaluation.ranking import to_device
from foretaste.evaluation.result import Evaluation
from foretaste.training.auto import TrainingPlan
from foretaste.training.callbacks import Callback, EpochReport
from foretaste.training.loop import Hooks, fit
from foretaste.training.state import Clock, TrainingState

_BATCH_SIZES = {
    ("neumf", "cuda"): 1 << 20,
    ("neumf", "cpu"): 1 << 16,
    ("vae", "cuda"): 24_576,
    ("vae", "cpu"): 500,
}
"""The reference's batch sizes on a GPU, and sizes that suit two cores of a CPU."""

CLOCKS = {
    "neumf": "an epoch: negatives drawn, order, batches, forward, backward, Adam",
    "vae": "an epoch: order, batches, forward, backward, Adam",
}
"""What the clock of a row covers, by model."""


SCALINGS = ("strong_scaling", "weak_scaling")
"""Rate of all ranks divided by the rate of one: with the same total batch (strong scaling), or with
the same batch per rank (weak scaling)."""


def bench_train(session: Session, options: TrainBench) -> None:
    """Measure training on generated data.

    With several ranks three cases are measured: the first rank alone, all ranks with the same total
    batch (strong scaling), and all ranks with the same batch per rank (weak scaling).
    """
    ranks, histories = session.ranks, session.histories()
    rate = f"{session.unit}_per_s"

    def measured(case: Case, ranks: Ranks) -> tuple[Document, Document]:
        found, epochs = measure_training(session, *case, options.warmup, ranks=ranks)
        return found, epochs.as_numbers(session.unit)

    for batch_size, precision in cases_of(session, options):
        case = training_case(session, options, histories, batch_size, precision)
        # The other ranks wait, so the first rank has the machine to itself.
        found, alone = ranks.run_on_first(partial(measured, case, ALONE))
        if ranks.size == 1:
            session.add(OURS, found, CLOCKS[session.name], alone)
            continue
        found |= {"ranks": 1, "batch_per_rank": batch_size}
        session.add(OURS, found, CLOCKS[session.name], alone | dict.fromkeys(SCALINGS, 1.0))
        for scaling in SCALINGS:
            session.log(f"{scaling.replace('_', ' ')} on {ranks.size} ranks")
            size = batch_size * (ranks.size if scaling == "weak_scaling" else 1)
            case = training_case(session, options, histories, size, precision)
            found, numbers = measured(case, ranks)
            found |= {"ranks": ranks.size, "batch_per_rank": size // ranks.size}
            numbers[scaling] = numbers[rate]["median"] / alone[rate]["median"]
            session.add(OURS, found, CLOCKS[session.name], numbers)


Case = tuple[Histories, TrainingPlan]
"""The data and the plan of a training."""


def cases_of(session: Session, options: TrainBench) -> Iterator[tuple[int, str]]:
    """Yield each batch size and precision, in turn."""
    for batch_size in options.batch_size or (default_batch_size(session),):
        for precision in options.precision:
            yield batch_size, precision


def training_case(
    session: Session, options: TrainBench, histories: Histories, batch_size: int, precision: str
) -> Case:
    """Return the data and the plan of a training."""
    part = session.part(histories, batch_size)
    epochs = options.warmup + options.repeats
    plan = session.plan(precision, batch_size, epochs)
    session.log(f"training in {plan.precision}, {batch_size:,} {session.unit} a batch")
    return part, plan


def default_batch_size(session: Session) -> int:
    """Return the reference's batch size on a GPU; on a CPU a size that suits two cores."""
    return _BATCH_SIZES[session.name, session.device.type]


@dataclass
class Epochs:
    """Times and memory of the epochs of one side."""

    num_samples: int = 0
    """Number of samples or users in an epoch."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of each epoch that counts."""
    compile_s: float = 0.0
    """Seconds of compiling before the first epoch."""
    warmup_s: float = 0.0
    """Seconds of the epochs of the warm-up."""
    build_s: float = 0.0
    """Seconds for tables, optimizer and index of the data."""
    memory: Document = field(default_factory=dict)
    """Peak until the end of the first epoch; the largest of all ranks."""
    sent_mib_per_update: float | None = None
    """MiB sent by a rank's collectives per update, in the last epoch; None for one process."""

    def add(self, seconds: float, is_warmup: bool, memory: Document) -> None:
        """Add an epoch; the memory of the first epoch is kept."""
        self.memory = self.memory or memory
        if is_warmup:
            self.warmup_s += seconds
        else:
            self.seconds.append(seconds)

    def as_numbers(self, unit: str) -> Document:
        """Return the entries of a row."""
        seconds = Spread.of(self.seconds)
        return {
            f"{unit}_per_s": seconds.per_second(self.num_samples).as_dict(),
            "epoch_s": seconds.as_dict(),
            f"epoch_{unit}": self.num_samples,
            "compile_s": self.compile_s,
            "warmup_s": self.warmup_s,
            "build_s": self.build_s,
            **self.memory,
            **({"sent_mib": sent} if (sent := self.sent_mib_per_update) is not None else {}),
        }


def measure_training(
    session: Session,
    histories: Histories,
    plan: TrainingPlan,
    num_warmup: int,
    after_epoch: Callable[[bool], None] = lambda _: None,
    ranks: Ranks = ALONE,
) -> tuple[Document, Epochs]:
    """Train the epochs of a plan; returns the case of a row, and the times.

    ``after_epoch`` is a callback after each epoch, with True in the warm-up. ``ranks`` train
    together.
    """
    epochs, memory = Epochs(), PeakMemory(session.device)
    built: list[Training] = []

    def build() -> None:
        built.append(Training(session, histories, plan, ranks))

    epochs.build_s = time_call(build, session.device)
    (training,) = built
    batches = training.batches
    epochs.num_samples = batches.num_samples
    num_bytes = [0]

    def count(report: EpochReport) -> None:
        is_warmup = report.epoch <= num_warmup
        num_bytes.append(sum(ranks.num_bytes.values()))
        epochs.add(report.train_s, is_warmup, _largest(memory.as_numbers(), ranks))
        after_epoch(is_warmup)

    epochs.compile_s = training.run(count).compile_s
    if ranks.size > 1:
        # The counts are running totals, so the difference is the last epoch alone.
        sent = num_bytes[-1] - num_bytes[-2]
        epochs.sent_mib_per_update = sent / batches.num_batches / 2**20
    case = {
        "precision": plan.precision,
        "kernels": plan.kernels,
        "batch_size": plan.batch_size,
        "updates": batches.num_batches,
    }
    return case, epochs


def _largest(memory: Document, ranks: Ranks) -> Document:
    """Return the memory of the rank with the largest peak."""
    own = memory["peak_memory_mib"]
    if ranks.size == 1 or own is None:
        return memory
    found = ranks.max_(torch.tensor(own, dtype=torch.float64))
    return memory | {"peak_memory_mib": found.item()}


class Training:
    """foretaste's training, with batches, model, optimizer and loop; a rank has its part of it."""

    def __init__(
        self, session: Session, histories: Histories, plan: TrainingPlan, ranks: Ranks = ALONE
    ) -> None:
        self.plan = plan
        strategy, num_users = strategy_of(ranks), histories.num_users
        users = strategy.users(session.model.parallel, histories.user_bounds)
        part = histories if users is None else histories[users.start : users.stop]
        self.model = session.build(part, users, num_users)
        tensors = to_device(part, session.device)
        self.model.count_items(tensors, ranks)
        self.batches, self.step = strategy.batches_and_step(self.model, tensors, plan)
        self.total = ranks.total

    def run(
        self,
        after_epoch: Callable[[EpochReport], None],
        evaluate: Callable[[], Evaluation] | None = None,
    ) -> Clock:
        """Train the plan's epochs; call ``after_epoch`` once the device has finished one."""

        class Reporting(Callback):
            def epoch_done(self, report: EpochReport) -> None:
                after_epoch(report)

        state = TrainingState.begin(
            self.plan,
            num_steps_per_epoch=self.batches.num_batches,
            num_samples=self.batches.num_samples,
            device=self.model.device,
            total=self.total,
        )
        fit(self.step, self.batches, state, Hooks(evaluate=evaluate), Reporting())
        return state.clock

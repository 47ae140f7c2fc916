"""``bench train``: throughput and time per epoch by precision and batch size, ours and plain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from foretaste.bench.aside import PlainCase, PlainProcess
from foretaste.bench.config import TrainBench
from foretaste.bench.generated import keep_interactions, keep_users, load_histories
from foretaste.bench.measure import Spread, synchronise, timed
from foretaste.bench.memory import PeakMemory
from foretaste.bench.rows import OURS, PLAIN, Recorder, Row
from foretaste.bench.shapes import parse_shape
from foretaste.bench.subject import OurTraining, Subject
from foretaste.bench.target import bench_target
from foretaste.data.histories import Histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.evaluation.ranking import to_device
from foretaste.ops.device import resolve_device
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.negatives import sample_negatives
from foretaste.ops.random import Purpose, stream_key
from foretaste.training.batches import InteractionBatches
from foretaste.training.progress import EpochReport
from foretaste.training.resolve import TrainingPlan

_BATCH_SIZES = {
    ("neumf", "cuda"): 1 << 20,
    ("neumf", "cpu"): 1 << 16,
    ("vae", "cuda"): 24_576,
    ("vae", "cpu"): 500,
}

OUR_CLOCK = {
    "neumf": "an epoch: negatives drawn, order, batches, forward, backward, Adam",
    "vae": "an epoch: order, batches, forward, backward, Adam",
}
_PLAIN_CLOCK = {
    "neumf": "an epoch over samples drawn and shuffled beforehand: forward, backward, Adam",
    "vae": "an epoch: order, dense rows made on the device, forward, backward, Adam",
}


def default_batch_size(subject: Subject, device: torch.device) -> int:
    """The reference's batch on a GPU, one that suits two cores on a CPU."""
    return _BATCH_SIZES[subject.name, device.type]


def bench_train(
    subject: Subject, options: TrainBench, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Measure training on generated data, and the time to a target where one is given."""
    device = resolve_device(options.device)
    shape = parse_shape(options.shape, subject.name)
    recorder = Recorder("train", subject.name, options, device, subject.settings(), tell)
    tell(f"generating {shape.num_interactions:,} interactions")
    histories = load_histories(shape, options.data_cache)
    for batch_size in options.batch_size or (default_batch_size(subject, device),):
        part = needed_part(subject, histories, batch_size, options.steps, options.seed)
        for precision in options.precision:
            tell(f"training in {precision}, {batch_size:,} {subject.unit} a batch")
            case = TrainingCase(subject, options, part, precision, batch_size, device)
            case.measure()
            _record(recorder, case, shape)
    if options.target is not None:
        bench_target(subject, options, histories, shape, recorder, device)
    return recorder.rows


def needed_part(
    subject: Subject, histories: Histories, batch_size: int, steps: int | None, seed: int
) -> Histories:
    """As much of the data as ``steps`` updates take; everything for None."""
    if steps is None:
        return histories
    if subject.sampling is None:
        return keep_users(histories, steps * batch_size, seed)
    per_row = 1 + subject.sampling.negatives
    grouped = subject.sampling.batch_layout == "grouped"
    rows_per_batch = max(1, batch_size // per_row) if grouped else math.ceil(batch_size / per_row)
    return keep_interactions(histories, steps * rows_per_batch, seed)


@dataclass
class Measured:
    """What was found out about one side."""

    seconds: list[float] = field(default_factory=list)
    """Of each epoch that counts."""
    compile_s: float = 0.0
    """Kernels, and the loss if it is to be, before the first epoch."""
    warmup_s: float = 0.0
    """Epochs before those that count."""
    build_s: float = 0.0
    """Tables and optimizer made, data indexed; the plain side's samples drawn and chunk found."""
    peak_memory_mib: float | None = None
    memory_is: str = ""

    def as_numbers(self, num_samples: int, unit: str) -> dict[str, Any]:
        seconds = Spread.of(self.seconds)
        return {
            f"{unit}_per_s": seconds.per_second(num_samples).as_dict(),
            "epoch_s": seconds.as_dict(),
            f"epoch_{unit}": num_samples,
            "compile_s": self.compile_s,
            "warmup_s": self.warmup_s,
            "build_s": self.build_s,
            "peak_memory_mib": self.peak_memory_mib,
            "peak_memory_is": self.memory_is,
        }


class TrainingCase:
    """One precision and batch size: our epochs, and plain ones in turns with them."""

    def __init__(
        self,
        subject: Subject,
        options: TrainBench,
        histories: Histories,
        precision: str,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self.subject = subject
        self.options = options
        self.precision = precision
        self.histories = histories
        self.device = device
        self.plan = subject.plan(
            precision,
            batch_size,
            options.warmup + options.repeats,
            options.seed,
            device,
            compile=options.compile,
        )
        self.sides = {OURS: Measured()}
        self.plain: PlainProcess | None = None
        self.negatives_s: float | None = None
        self.num_samples = 0
        self.num_batches = 0

    def measure(self) -> None:
        """Fill ``sides``: ours alone for the warm-up, then plain built, then both in turns."""
        memory = PeakMemory(self.device)
        ours: list[OurTraining] = []
        self.sides[OURS].build_s = timed(lambda: ours.append(self._build()), self.device)
        (training,) = ours
        self.num_samples = training.batches.num_samples
        self.num_batches = training.batches.num_batches
        batches = training.batches
        if isinstance(batches, InteractionBatches) and batches.sampling.verified_negatives:
            self.negatives_s = _negatives_s(batches, self.plan, self.device)
        try:
            clock = training.run(lambda report: self._after_epoch(report, memory))
        finally:
            if self.plain is not None:
                self.plain.close()
        self.sides[OURS].compile_s = clock.compile_s

    def _build(self) -> OurTraining:
        model = self.subject.build(self.histories, self.device, self.options.seed)
        return OurTraining(self.subject, model, self._tensors(), self.plan)

    def _tensors(self) -> HistoryTensors:
        return to_device(self.histories, self.device)

    def _after_epoch(self, report: EpochReport, memory: PeakMemory) -> None:
        ours = self.sides[OURS]
        if report.epoch == 1:
            ours.peak_memory_mib, ours.memory_is = memory.rise_mib(), memory.meaning
        is_warmup = report.epoch <= self.options.warmup
        if is_warmup:
            ours.warmup_s += report.train_s
        else:
            ours.seconds.append(report.train_s)
        if self.options.against == PLAIN:
            self._plain_epoch(is_warmup)

    def _plain_epoch(self, is_warmup: bool) -> None:
        measured = self.sides.setdefault(PLAIN, Measured())
        if self.plain is None:
            self.plain = PlainProcess(self._plain_case())
            measured.build_s = self.plain.built.build_s
        epoch = self.plain.epoch()
        if not measured.memory_is:
            measured.peak_memory_mib, measured.memory_is = epoch.peak_memory_mib, epoch.memory_is
        if is_warmup:
            measured.warmup_s += epoch.seconds
        else:
            measured.seconds.append(epoch.seconds)

    def _plain_case(self) -> PlainCase:
        return PlainCase(
            self.subject,
            self.histories,
            self.plan,
            self.options.plain_precision,
            self.options.plain_chunk,
            torch.get_num_threads(),
        )


def _negatives_s(batches: InteractionBatches, plan: TrainingPlan, device: torch.device) -> float:
    """Seconds to draw an epoch's negatives, the best of three; part of our epochs' time."""

    def draw() -> None:
        key = stream_key(plan.seed, Purpose.NEGATIVES, 0)
        number = batches.sampling.negatives
        sample_negatives(batches.complement, batches.user_index_N, number, key)

    synchronise(device)
    return min(timed(draw, device) for _ in range(3))


def _record(recorder: Recorder, case: TrainingCase, shape: GenerateConfig) -> None:
    subject, unit = case.subject, case.subject.unit
    common = {"batch_size": case.plan.batch_size, "updates": case.num_batches}
    numbers = {
        side: measured.as_numbers(case.num_samples, unit) for side, measured in case.sides.items()
    }
    ours = case.sides[OURS]
    if case.negatives_s is not None:
        numbers[OURS]["negatives_s"] = case.negatives_s
        numbers[OURS]["negatives_share"] = case.negatives_s / Spread.of(ours.seconds).median
    if case.plain is not None:
        ratio = Spread.of(case.sides[PLAIN].seconds).over(Spread.of(ours.seconds))
        numbers[OURS]["times_plain"] = ratio.as_dict()
        recorder.add(
            PLAIN,
            {
                "precision": case.options.plain_precision,
                **common,
                "chunk": case.plain.built.chunk,
            },
            _PLAIN_CLOCK[subject.name],
            numbers[PLAIN],
            shape=shape,
        )
    ours_case = {"precision": case.precision, **common}
    if case.plan.compile:
        ours_case["compiled"] = True
    recorder.add(OURS, ours_case, OUR_CLOCK[subject.name], numbers[OURS], shape=shape)

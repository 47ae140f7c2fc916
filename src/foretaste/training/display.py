"""A training as it is watched: bars on a terminal, a line per epoch everywhere, a summary."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from foretaste._util.formatting import compact, duration
from foretaste._util.terminal import printable_lines
from foretaste.evaluation.config import metric_name, parse_metric
from foretaste.training.callbacks import Callback, EpochReport, TrainingStart, TrainingSummary
from foretaste.training.config import HEEDED_IN_ONE_PASS, TrainingConfig

_WIDE_LOSS = 1e5
"""Losses from here on are written with an exponent: the column is that wide."""


class TrainingDisplay(Callback):
    """Callback that shows a training on ``console``; bars only where that is a terminal.

    One bar is of the epoch, the other, once an epoch is done, of all epochs and the time they take.
    Used as a context manager: the bars are gone when the block ends, however it ends.
    """

    def __init__(self, console: Console, asked: TrainingConfig, *, verbose: bool = False) -> None:
        self.console = console
        self.asked = asked
        self.verbose = verbose
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[detail]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.epoch_bar = self.bars.add_task("starting", total=None, detail="")
        self.training_bar = self.bars.add_task("", visible=False, detail="")
        self.epoch = 0
        self.training_pace: _Pace | None = None
        self.summary: TrainingSummary | None = None
        """The final numbers; None before they are there."""

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def started(self, start: TrainingStart) -> None:
        self.start = start
        self.num_epochs = start.plan.epochs if start.plan else 1
        verb = "Training" if start.resumed_at is None else "Resuming"
        self.say(f"{verb} {start.model} on {start.dataset} ({start.protocol})", "bold")
        for line in _start_lines(start, self.asked):
            self.say(f"  {line}")
        if self.verbose and start.plan is not None:
            settings = (f"{name}={value}" for name, value in vars(start.plan).items())
            self.say(f"  settings    {' '.join(settings)}")
        if start.plan is not None:
            judged = "".join(f"{name:>12}" for name in _shown_metrics(start))
            self.say(f"\nepoch        loss{judged}      time  samples/s", "bold")

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        now, done = time.perf_counter(), epoch - 1 + step / num_steps_per_epoch
        if epoch != self.epoch:
            self.epoch, self.epoch_pace = epoch, _Pace(now, done)
            self.bars.reset(
                self.epoch_bar,
                total=num_steps_per_epoch,
                description=f"epoch {epoch} of {self.num_epochs}",
            )
        rate = compact(self.start.num_samples * self.epoch_pace.epochs_per_s(now, done))
        left = duration(self.epoch_pace.seconds_to(epoch, now, done))
        self.bars.update(self.epoch_bar, completed=step, detail=f"{rate} samples/s, {left} left")
        self._show_all_epochs(now, done)

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        self.bars.update(
            self.epoch_bar,
            total=num_users,
            completed=num_done,
            description=f"ranking {split}",
            detail="",
        )

    def epoch_done(self, report: EpochReport) -> None:
        self.say(_epoch_line(report, self.start))
        for line in _detail_lines(report) if self.verbose else ():
            self.say(f"       {line}", "dim")
        self.bars.update(self.training_bar, visible=report.epoch < self.num_epochs)
        self._show_all_epochs(time.perf_counter(), report.epoch)

    def finished(self, summary: TrainingSummary) -> None:
        self.bars.stop()
        self.summary = summary
        if summary.select_by is not None:
            self.say()
        for line in _summary_lines(summary, self.asked.target):
            self.say(f"  {line}")

    def _show_all_epochs(self, now: float, done: float) -> None:
        self.training_pace = self.training_pace or _Pace(now, done)
        left = duration(self.training_pace.seconds_to(self.num_epochs, now, done))
        self.bars.update(
            self.training_bar,
            total=self.num_epochs,
            completed=done,
            description=f"all {self.num_epochs} epochs",
            detail=f"{left} left",
        )

    def say(self, line: str = "", style: str | None = None) -> None:
        """Print a line as it stands, above the bar."""
        text = printable_lines(line)
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class _Pace:
    """How fast a training goes since it was at a place, counted in epochs, validation included."""

    since: float
    place: float

    def epochs_per_s(self, now: float, place: float) -> float:
        return (place - self.place) / max(now - self.since, 1e-9)

    def seconds_to(self, end: float, now: float, place: float) -> float | None:
        """The time left until ``end``; None before there is anything to tell it by."""
        if place <= self.place:
            return None
        return (end - place) / self.epochs_per_s(now, place)


def _start_lines(start: TrainingStart, asked: TrainingConfig) -> list[str]:
    plan = start.plan
    data = (
        f"data        {start.num_users:,} users, {start.num_items:,} items, "
        f"{start.num_interactions:,} interactions"
    )
    if plan is None:
        # One config may serve every model of a comparison.
        ignored = [
            field.name
            for field in fields(TrainingConfig)
            if field.name not in HEEDED_IN_ONE_PASS and getattr(asked, field.name) != field.default
        ]
        fitting = [] if start.fitting is None else [f"fitting     {start.fitting}"]
        note = f"note        {start.model} is fitted in one pass and ignores {', '.join(ignored)}"
        return [data, *fitting, *([note] if ignored else [])]
    chosen = [
        f"--{field.name.replace('_', '-')} {getattr(plan, field.name)}"
        for field in fields(asked)
        # No choice of kernels to tell of: a CPU has one kind, a GPU one for each operation.
        if getattr(asked, field.name) == "auto" and field.name != "kernels"
    ]
    return [
        data,
        f"model       {start.num_parameters:,} parameters, {plan.precision}",
        *_beginning_lines(start),
        f"auto chose  {' '.join(chosen)}",
        f"best epoch  {_chosen_by(plan.select_by, start.selection_split)}",
    ]


def _beginning_lines(start: TrainingStart) -> list[str]:
    """Where it begins, unless that is the beginning."""
    again = [] if start.resumed_at is None else [f"goes on at  {start.resumed_at}"]
    lost = [
        f"note        most {kind} of {run} are not in these data: what it learned of them is lost; "
        "give it all data, not only what is new"
        for run, matches in start.started_from.items()
        for kind, counts in matches.items()
        if counts["num_gone"] > counts["num_found"]
    ]
    begun = [
        f"from        {run}: "
        + "; ".join(
            f"{counts['num_found']:,} {kind} found, {counts['num_new']:,} new, "
            f"{counts['num_gone']:,} gone"
            for kind, counts in matches.items()
        )
        for run, matches in start.started_from.items()
    ]
    return again + begun + lost


def _chosen_by(select_by: str, split: str | None) -> str:
    if split is None:
        return "the last: nothing is held out to choose by"
    if split == "validation":
        return f"chosen by {select_by} on the validation part"
    return (
        f"chosen by {select_by} on the test part itself, so its numbers flatter: no validation part"
    )


def _epoch_line(report: EpochReport, start: TrainingStart) -> str:
    judged, found, star = "", report.evaluation, " *" if report.is_best else ""
    for name in _shown_metrics(start):
        value = "" if found is None else f"{found[name]:.4f}"
        judged, star = judged + f"{value:>10}{star:2}", ""
    rate = compact(report.samples_per_s)
    loss = f"{report.loss:12.5f}" if abs(report.loss) < _WIDE_LOSS else f"{report.loss:12.4e}"
    return f"{report.epoch:5}{loss}{judged}{report.train_s:8.2f} s{rate:>11}"


def _shown_metrics(start: TrainingStart) -> list[str]:
    """The metric that chooses the epoch, and HR and NDCG at its list length."""
    if start.plan is None or start.selection_split is None:
        return []
    selected = start.plan.select_by
    length = parse_metric(selected)[1]
    return list(dict.fromkeys((selected, *(metric_name(kind, length) for kind in ("hr", "ndcg")))))


def _detail_lines(report: EpochReport) -> list[str]:
    """What changed as training went on, and everything that the validation found."""
    lines = []
    if report.settings:
        changed = (f"{name} {value:g}" for name, value in report.settings.items())
        lines.append(", ".join(changed).replace("_", " "))
    found = report.evaluation
    if found is not None:
        metrics = ", ".join(map(str, found.metrics.values()))
        lines.append(f"{found.num_users:,} users in {found.elapsed_s:.3g} s: {metrics}")
    return lines


def _summary_lines(summary: TrainingSummary, target: float | None) -> list[str]:
    memory = []
    if summary.memory_mib is not None:
        memory = [f"memory      {summary.memory_mib:,.0f} MiB at the peak"]
    if summary.select_by is None:
        return [f"fitted in   {summary.train_s:.3g} s", *memory]
    warm_up = ""
    if summary.num_warm_up_epochs:
        warm_up = f" ({summary.num_warm_up_epochs} of {summary.num_epochs} left out)"
    return [
        f"ended       {summary.stopped_because}",
        *_best_lines(summary, target),
        f"epoch time  min {summary.min_epoch_s:.3g} s, mean {summary.avg_epoch_s:.3g} s{warm_up}, "
        f"all {summary.train_s:.3g} s",
        f"throughput  {compact(summary.samples_per_s)} samples/s",
        *_evaluation_lines(summary),
        *memory,
    ]


def _evaluation_lines(summary: TrainingSummary) -> list[str]:
    if summary.min_evaluation_s is None:
        return []
    return [
        f"evaluation  min {summary.min_evaluation_s:.3g} s, mean {summary.avg_evaluation_s:.3g} s, "
        f"{compact(summary.evaluated_users_per_s)} users/s, "
        f"{compact(summary.evaluated_samples_per_s)} samples/s"
    ]


def _best_lines(summary: TrainingSummary, target: float | None) -> list[str]:
    if summary.best_value is None:
        return []
    lines = [
        f"best epoch  {summary.best_epoch} of {summary.num_epochs}, "
        f"{summary.select_by} {summary.best_value:.4f}"
    ]
    if target is not None:
        epoch = summary.target_epoch
        reached = "not reached"
        if epoch is not None:
            reached = f"first reached in epoch {epoch}, after {summary.target_s:.3g} s"
        lines.append(f"target      {summary.select_by} {target:g} {reached}")
    return lines

"""A training as it is watched: a bar within the epoch, a line per epoch, a summary."""

from __future__ import annotations

import time
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from foretaste.cli.console import say
from foretaste.evaluation.config import EvaluationConfig
from foretaste.report.tables import compact, evaluation_grid
from foretaste.training.progress import EpochReport, Progress, TrainingStart, TrainingSummary

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.training.config import TrainingConfig


class TrainingDisplay(Progress):
    """Shows a training on ``console``; the bar only where that is a terminal.

    Used as a context manager: the bar is gone when the block ends, however it ends.
    """

    def __init__(self, console: Console, asked: TrainingConfig) -> None:
        self.console = console
        self.asked = asked
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bars.add_task("starting", total=None, rate="")

    def __enter__(self) -> TrainingDisplay:
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
        for line in _start_lines(start, self.asked):
            say(self.console, line)
        if start.plan is not None:
            judged = f"{start.plan.select_by:>12}" if start.selection_split else ""
            say(self.console, f"\nepoch        loss{judged}      time  samples/s", "bold")

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        if step == 1:
            self.epoch_started = time.perf_counter()
            self.bars.reset(
                self.task, total=num_steps, description=f"epoch {epoch} of {self.num_epochs}"
            )
        elapsed_s = max(time.perf_counter() - self.epoch_started, 1e-9)
        rate = self.start.num_samples * (step - 1) / num_steps / elapsed_s
        self.bars.update(self.task, completed=step, rate=f"{compact(rate)} samples/s")

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        self.bars.update(
            self.task, total=num_users, completed=num_done, description=f"ranking {split}", rate=""
        )

    def epoch_done(self, report: EpochReport) -> None:
        say(self.console, _epoch_line(report, self.start))

    def finished(self, summary: TrainingSummary) -> None:
        self.bars.stop()
        say(self.console)
        for line in _summary_lines(summary, self.asked.target):
            say(self.console, line)
        if summary.test is not None:
            self.console.print(evaluation_grid(summary.test, EvaluationConfig().k).to_rich())
            for line in summary.test.definitions():
                say(self.console, line, "dim")


def _start_lines(start: TrainingStart, asked: TrainingConfig) -> list[str]:
    plan = start.plan
    lines = [
        f"Training {start.model} on {start.dataset} ({start.protocol})",
        f"  data        {start.num_users:,} users, {start.num_items:,} items, "
        f"{start.num_interactions:,} interactions",
    ]
    if plan is None:
        return lines
    chosen = [
        f"--{field.name.replace('_', '-')} {getattr(plan, field.name)}"
        for field in fields(asked)
        if getattr(asked, field.name) == "auto"
    ]
    lines.append(f"  model       {start.num_parameters:,} parameters, {plan.precision}")
    if chosen:
        lines.append(f"  auto chose  {' '.join(chosen)}")
    lines.append(f"  best epoch  {_selection(plan.select_by, start.selection_split)}")
    return lines


def _selection(select_by: str | None, split: str | None) -> str:
    where = {
        "validation": f"by {select_by} on the validation part",
        "test": f"by {select_by} on the test part itself, for want of a validation part: "
        "the test numbers flatter",
    }
    return where.get(split or "", "the last: nothing is held out")


def _epoch_line(report: EpochReport, start: TrainingStart) -> str:
    judged = ""
    if start.plan is not None and start.selection_split is not None:
        value = "" if report.evaluation is None else f"{report.evaluation[start.plan.select_by]:.4f}"
        judged = f"{value:>10}{' *' if report.is_best else '  '}"
    rate = compact(report.samples_per_s)
    return f"{report.epoch:5}{report.loss:12.5f}{judged}{report.train_s:8.2f} s{rate:>11}"


def _summary_lines(summary: TrainingSummary, target: float | None) -> list[str]:
    throughput = f"{compact(summary.samples_per_s)} samples/s in training"
    if summary.evaluated_users_per_s:
        throughput += f", {compact(summary.evaluated_users_per_s)} users/s in evaluation"
    lines = [f"Done: {summary.stopped_because}."]
    if summary.best_epoch is not None:
        value = "" if summary.best_value is None else f", {summary.select_by} {summary.best_value:.4f}"
        lines.append(f"  best epoch  {summary.best_epoch} of {summary.num_epochs}{value}")
    if target is not None:
        reached = f"first in epoch {summary.target_epoch}" if summary.target_epoch else "not reached"
        lines.append(f"  target      {summary.select_by} {target:g}: {reached}")
    return [
        *lines,
        f"  epoch time  min {summary.min_epoch_s:.3g} s, mean {summary.avg_epoch_s:.3g} s, "
        f"all {summary.train_s:.3g} s",
        f"  throughput  {throughput}",
        f"  memory      {summary.memory_mib:,.0f} MiB at the peak",
    ]

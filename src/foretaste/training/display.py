"""The display of a training: bars on a terminal, a line per epoch everywhere, a summary."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from foretaste._util.formatting import compact, duration, option_words, pluralize
from foretaste._util.pace import Pace, PlainProgress
from foretaste._util.settings import non_defaults
from foretaste._util.terminal import printable_lines
from foretaste.data.dataset import Dataset
from foretaste.evaluation.config import metric_name, parse_metric
from foretaste.models.registry import config_class
from foretaste.training.callbacks import (
    BesidePopularity,
    Callback,
    EpochReport,
    TrainingStart,
    TrainingSummary,
)
from foretaste.training.config import TrainingConfig, applies

_LOG = logging.getLogger("foretaste")
"""Logger of everything that is printed, for programs that keep logs of their own."""

_WIDE_LOSS = 1e5
"""Losses from this value on are written with an exponent, because the column is narrow."""

_LABEL = 10
"""Least width of the labels of data, the width of the training's labels."""


class TrainingDisplay(Callback):
    """Callback that shows a training on ``console``; bars if it is a terminal.

    One bar shows the epoch; the other, once an epoch is done, shows all epochs and their time.
    Without a terminal, a line every half minute gives the progress and the time left. Used as a
    context manager: the bars are gone when the block ends, however it ends.
    """

    def __init__(
        self,
        console: Console,
        asked: TrainingConfig,
        *,
        verbose: bool = False,
        searched: Mapping[str, Any] | None = None,
    ) -> None:
        self.console = console
        self.asked = asked
        self.searched = searched or {}
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
        self.step = ""
        self.step_pace = Pace(0.0, 0)
        self.training_pace: Pace | None = None
        self.tell = PlainProgress(lambda line: self.say(f"  {line}"))
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

    def preparing(self, step: str) -> None:
        self.bars.update(self.epoch_bar, description=f"Preparing: {step}")
        if not self.console.is_terminal and self.tell.is_due():
            self.say(f"Preparing: {step}")

    def prepared(self, source: str, dataset: Dataset) -> None:
        lines = dict([*dataset.manifest.choices(), ("rows", dataset.manifest.rows())])
        self.say(f"Prepared {source}: {dataset.path}")
        width = max(_LABEL, *map(len, lines))
        for label, value in lines.items():
            self.say(f"  {label:{width}}  {value}")
        self.bars.update(self.epoch_bar, description="starting")

    def resuming(self, run_path: Path) -> None:
        self.say(f"{run_path} is an unfinished run of the same request, and is resumed")

    def started(self, start: TrainingStart) -> None:
        self.start, plan = start, start.plan
        self.num_epochs = plan.epochs if plan else 1
        verb = "Training" if start.resumed_at is None else "Resuming"
        split = "nothing is held out" if start.protocol == "none" else start.protocol
        self.say(f"{verb} {start.model} on {start.dataset} ({split})", "bold")
        size = f"{pluralize(start.num_users, 'user')}, {pluralize(start.num_items, 'item')}"
        self._say_labelled("data", f"{size}, {pluralize(start.num_interactions, 'interaction')}")
        self._say_labelled("weights", start.weights)
        self._say_labelled("order", start.order)
        self._say_labelled("new items", start.new_items)
        self._say_labelled("searched", shlex.join(option_words(self.searched)) or None)
        self._say_search(start.search)
        kind = config_class(start.model)
        # One config may serve every model of a comparison.
        ignored = [name for name in non_defaults(self.asked) if not applies(name, kind)]
        note = f"{start.model} ignores {', '.join(ignored)}"
        if plan is None:
            self._say_labelled("fitting", start.fitting)
            self._say_labelled("note", note if ignored else None)
            return
        learned = f"{start.num_parameters:,} parameters, {plan.precision}"
        if kind.samples_negatives:
            learned += f", {start.num_samples // start.num_interactions - 1} negatives"
        self._say_labelled("model", learned)
        self._say_labelled("memory", start.memory)
        self._say_labelled("resumed at", start.resumed_at)
        self._say_origins(start.started_from)
        self._say_labelled("note", note if ignored else None)
        # The line above names the precision, and a CPU has one kind of kernels.
        hidden = {"precision", "kernels"}
        if not plan.ema:
            hidden.add("ema")
        if plan.learning_rate_schedule == "constant":
            hidden.add("learning_rate_schedule")
        chosen = {
            field.name: getattr(plan, field.name)
            for field in fields(self.asked)
            if getattr(self.asked, field.name) == "auto"
            and applies(field.name, kind)
            and field.name not in hidden
        }
        words = option_words({**chosen, **start.model_settings})
        self._say_labelled("auto chose", shlex.join(words))
        chosen_by = {
            None: "the last: nothing is held out to choose by",
            "validation": f"chosen by {plan.select_by} on the validation part",
            "test": f"chosen by {plan.select_by} on the test part itself, so its numbers flatter: "
            "no validation part",
        }
        is_chosen = plan.chooses_epoch or start.selection_split is None
        why = chosen_by[start.selection_split] if is_chosen else "the last: it alone is evaluated"
        self._say_labelled("best epoch", why)
        if self.verbose:
            settings = (f"{name}={value}" for name, value in vars(plan).items())
            self._say_labelled("settings", " ".join(settings))
        metrics = "".join(f"{name:>12}" for name in self._shown_metrics())
        self.say(f"\nepoch        loss{metrics}      time  samples/s", "bold")

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        now, done = time.perf_counter(), epoch - 1 + step / num_steps_per_epoch
        if epoch != self.epoch:
            self.epoch, self.epoch_pace = epoch, Pace(now, done)
            self.bars.reset(
                self.epoch_bar,
                total=num_steps_per_epoch,
                description=f"epoch {epoch} of {self.num_epochs}",
            )
        rate = compact(self.start.num_samples * self.epoch_pace.per_s(now, done))
        left = duration(self.epoch_pace.seconds_to(epoch, now, done))
        self.bars.update(self.epoch_bar, completed=step, detail=f"{rate} samples/s, {left} left")
        self._show_all_epochs(now, done)

    def fitting(self, step: str, num_done: int, num_all: int) -> None:
        self._show_step(step, num_done, num_all)

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        self._show_step(f"ranking {split}", num_done, num_users)

    def _show_step(self, step: str, num_done: int, num_all: int) -> None:
        now = time.perf_counter()
        # Each evaluation of a training begins at zero.
        if step != self.step or num_done < self.step_pace.position:
            self.step, self.step_pace = step, Pace(now, num_done)
        left_s = self.step_pace.seconds_to(num_all, now, num_done)
        self.bars.update(
            self.epoch_bar,
            total=num_all,
            completed=num_done,
            description=step,
            detail=f"{duration(left_s)} left",
        )
        if not self.console.is_terminal:
            self.tell(step, num_done / num_all, left_s)

    def epoch_done(self, report: EpochReport) -> None:
        metrics, found, star = "", report.evaluation, " *" if report.is_best else ""
        for name in self._shown_metrics():
            value = "" if found is None else f"{found[name]:.4f}"
            metrics, star = metrics + f"{value:>10}{star:2}", ""
        loss = f"{report.loss:12.5f}" if abs(report.loss) < _WIDE_LOSS else f"{report.loss:12.4e}"
        rate = compact(report.samples_per_s)
        self.say(f"{report.epoch:5}{loss}{metrics}{report.train_s:8.2f} s{rate:>11}")
        if self.verbose and report.settings:
            values = ", ".join(f"{name} {value:g}" for name, value in report.settings.items())
            self.say(f"       {values.replace('_', ' ')}", "dim")
        if self.verbose and found is not None:
            values = ", ".join(map(str, found.metrics.values()))
            users = f"{pluralize(found.num_users, 'user')} in {found.elapsed_s:.3g} s"
            self.say(f"       {users}: {values}", "dim")
        self.bars.update(self.training_bar, visible=report.epoch < self.num_epochs)
        self._show_all_epochs(time.perf_counter(), report.epoch)

    def finished(self, summary: TrainingSummary) -> None:
        self.bars.stop()
        self.summary = summary
        if summary.select_by is None:
            self._say_labelled("fitted in", f"{summary.train_s:.3g} s")
        else:
            self._say_epochs(summary)
        self._say_beside_popularity(summary.popularity)
        if summary.search_s:
            self._say_labelled("search", f"{summary.search_s:.3g} s, before the training")
        if summary.memory_mib is not None:
            self._say_labelled("memory", f"{summary.memory_mib:,.0f} MiB at the peak")

    def _say_search(self, search: Mapping[str, Any]) -> None:
        """Print the settings that the validation part chose, and what they gain."""
        if not search:
            return
        gain = f"{search['select_by']} {search['value']:.4f}"
        sample = search.get("sample", {})
        found = sample.get("settings", search["settings"])
        words = shlex.join(option_words(found)) or "nothing better than the rule"
        if found:
            gain += f", by the rule {search['value_by_rule']:.4f}"
        to = f" to {sample['interactions']:,} interactions" if sample else ""
        fits = f"{search['fits']} fits{to} on the validation part"
        self._say_labelled("searched", f"{words}, by {fits}: {gain}")
        self._say_labelled("on all data", _on_all_data(search["select_by"], sample))
        self._say_labelled("features", _features_line(search))

    def _say_origins(self, started_from: Mapping[str, Any]) -> None:
        """Print the runs behind the first weights, and the users and items new data lack."""
        for run, matches in started_from.items():
            found = "; ".join(
                f"{counts['num_found']:,} {kind} found, {counts['num_new']:,} new, "
                f"{counts['num_gone']:,} gone"
                for kind, counts in matches.items()
            )
            self._say_labelled("from", f"{run}: {found}")
        for run, matches in started_from.items():
            for kind, counts in matches.items():
                if counts["num_gone"] > counts["num_found"]:
                    self._say_labelled(
                        "note",
                        f"most {kind} of {run} are not in these data: what it learned of them is "
                        "lost; give it all data, not only what is new",
                    )

    def _say_epochs(self, summary: TrainingSummary) -> None:
        """Print the best epoch, and times and rates of all."""
        self.say()
        self._say_labelled("ended", summary.stopped_because)
        if summary.best_value is not None:
            best = f"{summary.select_by} {summary.best_value:.4f}"
            self._say_labelled(
                "best epoch", f"{summary.best_epoch} of {summary.num_epochs}, {best}"
            )
            if summary.fold_in:
                chosen = ", ".join(f"{name} {value:g}" for name, value in summary.fold_in.items())
                better = ", which the value above is of" if summary.validation else ""
                self._say_labelled("new users", f"{chosen}, by the validation part{better}")
            if self.asked.target is not None:
                reached = "not reached"
                if summary.target_epoch is not None:
                    after = f"after {summary.target_s:.3g} s"
                    reached = f"first reached in epoch {summary.target_epoch}, {after}"
                self._say_labelled("target", f"{summary.select_by} {self.asked.target:g} {reached}")
        warm_up = ""
        if summary.num_warm_up_epochs:
            warm_up = f" ({summary.num_warm_up_epochs} of {summary.num_epochs} left out)"
        times = f"min {summary.min_epoch_s:.3g} s, mean {summary.avg_epoch_s:.3g} s{warm_up}"
        self._say_labelled("epoch time", f"{times}, all {summary.train_s:.3g} s")
        self._say_labelled("throughput", f"{compact(summary.samples_per_s)} samples/s")
        if summary.min_evaluation_s is not None:
            self._say_labelled(
                "evaluation",
                f"min {summary.min_evaluation_s:.3g} s, mean {summary.avg_evaluation_s:.3g} s, "
                f"{compact(summary.evaluated_users_per_s)} users/s, "
                f"{compact(summary.evaluated_samples_per_s)} samples/s",
            )

    def _say_beside_popularity(self, found: BesidePopularity | None) -> None:
        """Print popularity's value, and a note if the model is not clearly better."""
        if found is None:
            return
        value = f"{found.metric} {found.value:.4f} on the same users; "
        gain = f"{self.start.model} has {found.gain:+.4f}"
        if found.low is not None:
            gain += f" ({found.low:+.4f} to {found.high:+.4f})"
        self._say_labelled("popularity", value + gain)
        if found.low is not None and found.low > 0:
            return
        note = f"{self.start.model} is not clearly better than popularity"
        plan, auto = self.start.plan, self.start.auto_batch_size
        if plan is not None and auto is not None:
            updates = pluralize(self.start.num_steps_per_epoch, "update")
            note += f": {updates} an epoch, in batches of {plan.batch_size:,}"
            note += f"; auto takes {auto:,}" if auto != plan.batch_size else ""
        self._say_labelled("note", note)

    def _shown_metrics(self) -> list[str]:
        """Return the metric that chooses the epoch, and HR and NDCG at its list length."""
        if self.start.plan is None or self.start.selection_split is None:
            return []
        selected = self.start.plan.select_by
        length = parse_metric(selected)[1]
        metrics = (selected, metric_name("hr", length), metric_name("ndcg", length))
        return list(dict.fromkeys(metrics))

    def _say_labelled(self, label: str, text: str | None) -> None:
        """Print a line of the start or the end; nothing if there is no text."""
        if text is not None:
            self.say(f"  {label:12}{text}")

    def _show_all_epochs(self, now: float, done: float) -> None:
        self.training_pace = self.training_pace or Pace(now, done)
        left_s = self.training_pace.seconds_to(self.num_epochs, now, done)
        self.bars.update(
            self.training_bar,
            total=self.num_epochs,
            completed=done,
            description=f"all {self.num_epochs} epochs",
            detail=f"{duration(left_s)} left",
        )
        if not self.console.is_terminal:
            self.tell(f"all {self.num_epochs} epochs", done / self.num_epochs, left_s)

    def say(self, line: str = "", style: str | None = None) -> None:
        """Print a line as it stands, above the bar, and log it."""
        text = printable_lines(line)
        if text.strip():
            _LOG.info(text.strip("\n"))
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _on_all_data(metric: str, sample: Mapping[str, Any]) -> str | None:
    """Return the value on all data of a sample's choice; None if the rule chose the same."""
    if "settings" not in sample:
        return None
    words, by_rule = shlex.join(option_words(sample["settings"])), sample["value_by_rule"]
    if (value := sample["value"]) is None:
        return f"{words} could not be fitted beside the rule, which is kept"
    kept = "" if value > by_rule else ", which is kept"
    return f"{words}: {metric} {value:.4f}, by the rule {by_rule:.4f}{kept}"


def _features_line(search: Mapping[str, Any]) -> str | None:
    """Return what features change on the validation part; None without them."""
    features, parts = search.get("features", {}), []
    if "gain" in features:
        interval = f"{features['low']:+.4f} to {features['high']:+.4f}"
        parts.append(f"change {search['select_by']} by {features['gain']:+.4f} ({interval})")
    if "lists" in features:
        share = f"{100 * features['lists']:.1f} %"
        parts.append(f"a new item stands in {share} of the lists of 20")
    return f"{', '.join(parts)} on the validation part" if parts else None

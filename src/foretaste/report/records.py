"""Sections on the trainings of runs: learning curves, time, settings, versions and digests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from foretaste._util.documents import Document
from foretaste._util.formatting import compact
from foretaste.measure.tables import Cell, Grid
from foretaste.report import plots
from foretaste.report.blocks import Figure, Section, Table, figure
from foretaste.runs.files import CONFIG
from foretaste.runs.log import summary_of
from foretaste.runs.run import Run, model_config

if TYPE_CHECKING:
    from foretaste.evaluation.result import Evaluation

TIME_PARTS = ("training", "compiling", "evaluation", "other")


def learning(runs: Mapping[str, Run]) -> Section:
    labels = [*runs]
    charts = [
        plots.lines("epoch", name.replace("/", " "), curve, labels)
        for name, curve in _validation_curves(runs).items()
    ]
    losses = {
        label: [
            {"run": label, "x": epoch["epoch"], "value": epoch["loss"]}
            for epoch in run.history
            if epoch["loss"] is not None
        ]
        for label, run in runs.items()
        if run.history
    }
    charts += [
        plots.lines("epoch", f"loss of {label}", curve, labels) for label, curve in losses.items()
    ]
    text = ["Losses of different models are on scales of their own."] if len(losses) > 1 else []
    if in_one_pass := [label for label in labels if label not in losses]:
        text.append(f"Fitted in one pass, without epochs: {', '.join(in_one_pass)}.")
    caption = "The metric that chooses the epoch, and the loss of each epoch"
    drawn = figure(labels, caption, charts, is_keyed=True, numbers="the runs' logs")
    return Section(
        name="learning",
        heading="Learning curves",
        text=tuple(text),
        figures=(drawn,) if charts else (),
    )


def time(runs: Mapping[str, Run], evaluations: Mapping[str, Evaluation]) -> Section:
    rows = [
        {"run": label, "part": part, "value": value}
        for label, run in runs.items()
        for part, value in seconds(run).items()
    ]
    chart = plots.bars("seconds", rows, [*runs], TIME_PARTS)
    return Section(
        name="time",
        heading="Time",
        text=(
            "From the start of training to its end. Other is what remains: reading, saving, and "
            "making the model. Speed of ranking is that of this report.",
        ),
        figures=(
            Figure(
                caption="Seconds of each training by what they were spent on",
                alternative="A bar for each run; the table below has the numbers.",
                charts=(chart,),
                key=TIME_PARTS,
                of="part",
            ),
        ),
        tables=(
            Table(
                caption="Epochs, seconds, peak memory and speed",
                grid=_training_grid(runs, evaluations),
            ),
        ),
    )


def settings(runs: Mapping[str, Run]) -> Section:
    by_run: dict[str, dict[str, str]] = {}
    for label, run in runs.items():
        config = run.config
        model = model_config(config, run.path / CONFIG)
        values = {"model": config.model, **config.model_config, **model.resolved_settings}
        values |= config.resolved
        by_run[label] = {name: _value(value) for name, value in values.items()}
    return Section(name="settings", heading="Settings", tables=_facts("Settings", by_run))


def origin(runs: Mapping[str, Run]) -> Section:
    heading = "Versions and digests"
    by_run = {label: _origin_of(run) for label, run in runs.items()}
    return Section(name="origin", heading=heading, tables=_facts(heading, by_run))


def _facts(heading: str, by_run: Mapping[str, Mapping[str, str]]) -> tuple[Table, ...]:
    """Return a table of the facts that differ, one column per run, and a table of the others."""
    differing, same = [], []
    for name in dict.fromkeys(name for found in by_run.values() for name in found):
        shown = [found.get(name) for found in by_run.values()]
        distinct = {value for value in shown if value is not None}
        if len(distinct) > 1:
            differing.append((name, tuple(Cell(value or "-") for value in shown)))
        else:
            same.append((name, tuple(map(Cell, distinct))))
    alike = f"{heading} of every run that has them" if len(by_run) > 1 else heading
    grids = {
        f"{heading} that differ": Grid(headings=("", *by_run), rows=tuple(differing)),
        alike: Grid(headings=("", "value"), rows=tuple(same)),
    }
    return tuple(Table(caption=caption, grid=grid) for caption, grid in grids.items() if grid.rows)


def seconds(run: Run) -> dict[str, float]:
    """Return a training's seconds by `TIME_PARTS`; if unfinished, its epochs' seconds so far.

    ``other`` is absent for an unfinished training, and for one that was interrupted.
    """
    events = run.log.read()
    summary = summary_of(events) or {}
    trained = sum(event["train_s"] for event in events if event["event"] == "epoch")
    evaluated = sum(
        event["evaluation"]["elapsed_s"] for event in events if event["event"] == "evaluation"
    )
    found = {
        "training": summary.get("train_s") or trained,
        "compiling": summary.get("compile_s") or 0.0,
        "evaluation": evaluated,
    }
    is_whole = not any(event["event"] == "resume" for event in events)
    if summary and is_whole:
        first, last = (datetime.fromisoformat(_last_event(events, name)["time"])
                       for name in ("start", "summary"))  # fmt: skip
        found["other"] = max(0.0, (last - first).total_seconds() - sum(found.values()))
    return found


def _training_grid(runs: Mapping[str, Run], evaluations: Mapping[str, Evaluation]) -> Grid:
    """Return epochs, seconds by part, memory and speed of each run."""
    headings = ("", "epochs", "best epoch", *(f"{part}, s" for part in TIME_PARTS))
    rows = []
    for label, run in runs.items():
        summary = run.log.summary or {}
        spent, found = seconds(run), evaluations[label]
        cells = [
            _value(summary.get("num_epochs") if summary.get("best_epoch") else None),
            _value(summary.get("best_epoch")),
            *(f"{spent[part]:,.2f}" if part in spent else "-" for part in TIME_PARTS),
            f"{summary['memory_mib']:,.0f}" if summary.get("memory_mib") else "-",
            compact(found.num_users / max(found.elapsed_s, 1e-9)),
        ]
        rows.append((label, tuple(map(Cell, cells))))
    return Grid(headings=(*headings, "memory, MiB", "users ranked a second"), rows=tuple(rows))


def _validation_curves(runs: Mapping[str, Run]) -> dict[str, list[Document]]:
    """Return the values of the metric that chose the epoch, at each evaluated epoch, by metric."""
    curves: dict[str, list[Document]] = {}
    for label, run in runs.items():
        selected = run.config.resolved.get("select_by")
        # Take one part only: the best epoch also has a value of the test part.
        measured = {name for epoch in run.history for name in epoch}
        names = [f"{part}/{selected}" for part in ("validation", "test")]
        for name in [name for name in names if name in measured][:1]:
            curves.setdefault(name, []).extend(
                {"run": label, "x": epoch["epoch"], "value": epoch[name]}
                for epoch in run.history
                if epoch.get(name) is not None
            )
    return curves


def _origin_of(run: Run) -> dict[str, str]:
    config, dataset = run.config, run.config.dataset
    return {
        "directory": str(run.path),
        "begun": config.created.replace("T", " "),
        "dataset": dataset.name,
        "dataset's digest": dataset.digest,
        **({"sha256 of the weights": run.open_weights().digest} if run.has_weights else {}),
        **{name: str(value) for name, value in config.versions.items()},
        **{name.replace("_", " "): _value(value) for name, value in config.hardware.items()},
    }


def _value(value: object) -> str:
    """Return a setting as text; lists and mappings as JSON."""
    if value is None:
        return "-"
    return json.dumps(value) if isinstance(value, Mapping | list | tuple | bool) else str(value)


def _last_event(events: Sequence[Document], kind: str) -> Document:
    """Return the last event of a kind; empty if there is none."""
    return next((event for event in reversed(events) if event["event"] == kind), {})

"""Pictures from rows of measurements; the last measured row of each case is drawn.

    python -m benchmarks.draw FILE --output speed.svg
    python -m benchmarks.draw FILE --output beauty.svg --metric hr@10 --dataset beauty

The first has bars of speed. The second has a metric against the seconds of whole commands, from
rows of ``benchmarks.leaderboard``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from foretaste.report.plots import svg

_TASKS = {
    "train": "training {}",
    "inference": "scores {}",
    "recommend": "recommending {}",
    "rank-all": "ranking everyone, {}",
}
_NAMES = {"neumf": "NeuMF", "vae": "Mult-VAE"}
_BATCHES = {
    ("train", "neumf"): 65_536,
    ("train", "vae"): 500,
    ("inference", "vae"): 128,
    ("recommend", "vae"): 256,
    ("rank-all", "neumf"): None,
}
"""Batch size in the drawing, by benchmark and model."""
_COLORS = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1d2327; --line: #8b959c; --grid: #e3e7ea; --run-1: #0062a3; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #15191c; --ink: #e4e8ea; --line: #6c777e; --grid: #2a3137; --run-1: #5aa9e6; } }
svg { color: var(--ink); background: var(--paper); }
"""


def main(tokens: Sequence[str] | None = None) -> None:
    """Write the drawing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.draw", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--metric", help="draw it against seconds, with --dataset")
    parser.add_argument("--dataset")
    given = parser.parse_args(tokens)
    rows = [json.loads(line) for line in given.file.read_text(encoding="utf-8").splitlines()]
    drawn = (
        quality_against_seconds(rows, given.dataset, given.metric)
        if given.metric
        else drawing(rows)
    )
    given.output.write_text(drawn, encoding="utf-8")


def drawing(rows: Sequence[Mapping[str, Any]]) -> str:
    """The speed of each case as a multiple of the plain implementation's, as SVG."""
    last = {name: row["measured"]["times_plain"] for row in rows if (name := case_of(row))}
    values = [
        {"case": name, **{key: times[key] for key in ("median", "min", "max")}}
        for name, times in sorted(last.items())
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("case:N", title=None, sort=None, axis=alt.Axis(labelLimit=400))
    )
    x = alt.X("median:Q", title="times as fast as the plain implementation")
    chart = alt.layer(
        base.mark_bar(color="var(--run-1)", height=14).encode(x=x),
        base.mark_rule(color="currentColor").encode(x=alt.X("min:Q"), x2="max:Q"),
        alt.Chart(alt.Data(values=[{"one": 1}]))
        .mark_rule(color="currentColor", strokeDash=[4, 3])
        .encode(x="one:Q"),
    ).properties(width=760, height=24 * len(values) + 48)
    return _page(chart, "Speed against the plain implementation, with the range of turns")


def quality_against_seconds(rows: Sequence[Mapping[str, Any]], dataset: str, metric: str) -> str:
    """A metric of each model with its interval against its seconds of the processor, as SVG."""
    last = {
        row["model"]: row["measured"]
        for row in rows
        if row["case"]["dataset"] == dataset and "options" not in row["case"]
    }
    values = [
        {"model": model, "seconds": measured["cpu_s"]}
        | dict(zip(("value", "low", "high"), measured["metrics"][metric], strict=True))
        for model, measured in last.items()
    ]
    values.sort(key=lambda one: -one["value"])
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X(
            "seconds:Q",
            title="seconds of one thread, start, search and evaluations included",
            scale=alt.Scale(type="log"),
            axis=alt.Axis(values=[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]),
        )
    )
    y = alt.Y("value:Q", title=metric.upper())
    chart = alt.layer(
        base.mark_rule(color="var(--line)").encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_point(color="var(--run-1)", filled=True, opacity=1, size=60).encode(y=y),
        # Names of neighbours in value stand on different sides, so that they do not overlap.
        *(
            base.mark_text(align=align, dx=dx, fontSize=12, color="currentColor")
            .encode(y=y, text="model:N")
            .properties(data=alt.Data(values=values[first::2]))
            for first, align, dx in ((0, "left", 8), (1, "right", -8))
        ),
    ).properties(width=760, height=380)
    return _page(chart, f"{metric.upper()} against seconds on {dataset}, with 95 % intervals")


def _page(chart: alt.LayerChart, title: str) -> str:
    head, rest = svg(chart).split(">", 1)
    return f'{head} role="img"><title>{title}</title><style>{_COLORS}</style>{rest}'


def case_of(row: Mapping[str, Any]) -> str | None:
    """The name of a case that is drawn: ours, beside the plain side, at NVIDIA's sizes."""
    kind, case = (row["benchmark"], row["model"]), row["case"]
    if kind not in _BATCHES or row["side"] != "foretaste" or "times_plain" not in row["measured"]:
        return None
    is_drawn = case.get("batch_size") == _BATCHES[kind] and not case.get("compiled")
    has_size = row["model"] == "vae" or row["settings"].get("factors") == 64
    if not is_drawn or not has_size:
        return None
    size = "ML-20M" if row["shape"]["num_users"] > 50_000 else "ML-1M"
    task = _TASKS[row["benchmark"]].format(_NAMES[row["model"]])
    return f"{task}, {size}, {case['precision']}"


if __name__ == "__main__":
    main()

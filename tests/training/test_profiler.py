"""The profile of a few steps and of the ranking after them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from foretaste.data import Dataset
from foretaste.ops.spans import in_spans, named_spans, span
from foretaste.training import Callback, LogConfig, resume
from foretaste.training.profiler import NUM_RANKING_BATCHES, NUM_STEPS
from tests.training.test_interruption import Killing
from tests.training.trainings import events, run_of, weights_of

TRACED = LogConfig(trace=True)
MOST_BYTES = 20_000_000


class Steps(Callback):
    """Notes the epoch and step of every update."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.seen.append((epoch, step))


def trace_of(run: Any) -> dict[str, Any]:
    text = (run.path / "trace.json").read_text()
    assert len(text) < MOST_BYTES
    trace: dict[str, Any] = json.loads(text)
    return trace


def spans_of(run: Any) -> Counter[str]:
    return Counter(
        event["name"]
        for event in trace_of(run)["traceEvents"]
        if event.get("cat") == "user_annotation"
    )


@pytest.mark.parametrize("name", ["neumf", "vae"])
def test_a_trace_has_a_few_steps_and_batches(name: str, dataset: Dataset, tmp_path: Path) -> None:
    run = run_of(
        name, dataset, tmp_path / "run", logs=TRACED, batch_size=8, evaluation_batch=4, epochs=3
    )
    spans = spans_of(run)
    for part in ("forward", "backward", "step"):
        assert spans[part] == NUM_STEPS
    assert spans["evaluate"] == NUM_RANKING_BATCHES
    assert NUM_STEPS <= spans["data"] <= NUM_STEPS + 1  # the end of the epoch looks for one more


def test_spans_lie_in_order_on_one_clock(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("gmf", dataset, tmp_path / "run", logs=TRACED, batch_size=500)
    named = {"data", "forward", "backward", "step", "evaluate"}
    found = [event for event in trace_of(run)["traceEvents"] if event.get("name") in named]
    assert {event["ph"] for event in found} == {"X"}
    in_time = [event["name"] for event in sorted(found, key=lambda event: event["ts"])]
    assert in_time[:8] == ["data", "forward", "backward", "step"] * 2
    assert in_time[-1] == "evaluate"


class Profiled(Steps):
    """Notes which steps of which epoch are profiled."""

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        if torch.autograd.profiler._is_profiler_enabled:
            super().stepped(epoch, step, num_steps_per_epoch)
        self.num_steps = num_steps_per_epoch


@pytest.mark.parametrize(
    ("num_steps", "traced"),
    [(1, [1]), (2, [2]), (3, [2, 3]), (4, [2, 3, 4]), (6, [4, 5, 6]), (10, [4, 5, 6])],
)
def test_a_single_epoch_is_traced_once_it_is_under_way(
    num_steps: int, traced: list[int], dataset: Dataset, tmp_path: Path
) -> None:
    num_samples = dataset.train.num_interactions * 5
    profiled = Profiled()
    run = run_of(
        "gmf",
        dataset,
        tmp_path / "run",
        logs=TRACED,
        epochs=1,
        batch_size=-(-num_samples // num_steps),
        callback=profiled,
    )
    assert profiled.num_steps == num_steps
    assert profiled.seen == [(1, step) for step in traced]
    assert spans_of(run)["step"] == len(traced)
    assert spans_of(run)["evaluate"] == 1


@pytest.mark.parametrize(
    ("epochs", "stopped_at", "traced"),
    [(1, 13, [17, 18, 19]), (3, 1, [5, 6, 7]), (3, 36, [40, 41, 42]), (3, 40, [42])],
)
def test_a_training_that_goes_on_in_its_last_epoch_is_traced_there(
    epochs: int, stopped_at: int, traced: list[int], dataset: Dataset, tmp_path: Path
) -> None:
    """Once it is under way again: its first steps after a pause are slow too."""
    path, batch_size = tmp_path / "run", 5 * (dataset.train.num_interactions // 40)
    killing = Killing(f"step {epochs}-{stopped_at}")
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, path, epochs=epochs, batch_size=batch_size, callback=killing)
    profiled = Profiled()
    run = resume(path, logs=TRACED, callback=profiled)
    assert profiled.num_steps == 42
    assert profiled.seen == [(epochs, step) for step in traced]
    assert spans_of(run)["step"] == len(traced)
    assert spans_of(run)["evaluate"] == 1


def test_the_profiler_keeps_to_itself(dataset: Dataset, tmp_path: Path) -> None:
    """In a process of its own: it decides once what it says on the terminal."""
    command = [sys.executable, "-m", "foretaste", "train", "gmf", dataset.path, "--trace"]
    options = ["--epochs", "1", "--factors", "2", "--device", "cpu", "--run", tmp_path / "run"]
    done = subprocess.run(
        [*map(str, command + options)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert (tmp_path / "run" / "trace.json").is_file()


def test_ranking_is_traced_when_it_comes(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("gmf", dataset, tmp_path / "run", logs=TRACED, epochs=4, eval_every=4)
    assert spans_of(run)["evaluate"] == 1


def test_nothing_is_ranked_where_nothing_is_held_out(everything: Dataset, tmp_path: Path) -> None:
    run = run_of("gmf", everything, tmp_path / "run", logs=TRACED)
    assert spans_of(run)["step"] == NUM_STEPS
    assert spans_of(run)["evaluate"] == 0


def test_a_trace_changes_no_number(dataset: Dataset, tmp_path: Path) -> None:
    traced = run_of("neumf", dataset, tmp_path / "traced", logs=TRACED)
    plain = run_of("neumf", dataset, tmp_path / "plain")
    assert weights_of(traced) == weights_of(plain)
    assert not (plain.path / "trace.json").exists()


def test_an_interrupted_training_ends_its_profile(dataset: Dataset, tmp_path: Path) -> None:
    """And a resumed one begins another: in the second epoch after it goes on."""
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_of(
            "gmf",
            dataset,
            path,
            logs=TRACED,
            batch_size=200,
            callback=Killing("step 2-1"),
        )
    assert not torch.autograd.profiler._is_profiler_enabled
    assert not (path / "trace.json").exists()
    steps = Steps()
    run = resume(path, logs=TRACED, callback=steps)
    assert steps.seen[0] == (2, 2)
    assert spans_of(run)["step"] == NUM_STEPS
    assert len(events(run, "summary")) == 1


def test_spans_are_named_only_for_profilers() -> None:
    with torch.profiler.profile(acc_events=True) as silent, span("unheard"):
        torch.ones(1)
    with named_spans(), torch.profiler.profile(acc_events=True) as heard:
        assert list(in_spans("next", [1, 2])) == [1, 2]
        with span("heard"):
            torch.ones(1)
    names = Counter(event.name for event in heard.events())
    assert "unheard" not in {event.name for event in silent.events()}
    assert (names["heard"], names["next"]) == (1, 3)

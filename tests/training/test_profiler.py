"""The profile of a few steps."""

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
from foretaste.ops.spans import in_spans, span
from foretaste.training import Callback, LogConfig, resume
from tests.training.test_interruption import Killing
from tests.training.trainings import run_of, weights_of

TRACED = LogConfig(trace=True)


class Profiled(Callback):
    """Records the profiled steps of each epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        if torch.autograd.profiler._is_profiler_enabled:
            self.seen.append((epoch, step))


def trace_of(run: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads((run.path / "trace.json").read_text())["traceEvents"]
    return events


def batch_size(dataset: Dataset, num_steps: int) -> int:
    """Samples of a batch of GMF, which has 4 negatives for each interaction."""
    return -(-dataset.train.num_interactions * 5 // num_steps)


@pytest.mark.parametrize(
    ("epochs", "num_steps", "traced"),
    [
        (1, 1, [(1, 1)]),
        (1, 3, [(1, 2), (1, 3)]),
        (1, 6, [(1, 4), (1, 5), (1, 6)]),
        (2, 10, [(1, 4), (1, 5), (1, 6)]),
        (3, 2, [(2, 2)]),
    ],
)
def test_three_steps_after_three_are_traced(
    epochs: int, num_steps: int, traced: list[tuple[int, int]], dataset: Dataset, tmp_path: Path
) -> None:
    size, profiled = batch_size(dataset, num_steps), Profiled()
    run = run_of(
        "gmf",
        dataset,
        tmp_path / "run",
        logs=TRACED,
        callback=profiled,
        epochs=epochs,
        batch_size=size,
        eval_every=epochs,
    )
    assert profiled.seen == traced
    spans = [event for event in trace_of(run) if event.get("cat") == "user_annotation"]
    in_time = [event["name"] for event in sorted(spans, key=lambda event: event["ts"])]
    parts = ["data", "forward", "backward", "step"]
    assert [name for name in in_time if name in parts][: 4 * len(traced)] == parts * len(traced)


def test_a_resumed_training_is_traced_and_no_number_changes(
    dataset: Dataset, tmp_path: Path
) -> None:
    """An interruption ends a profile."""
    path, size = tmp_path / "run", batch_size(dataset, 10)
    killing = Killing("step 1-5")
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, path, logs=TRACED, callback=killing, epochs=1, batch_size=size)
    assert not torch.autograd.profiler._is_profiler_enabled
    assert not (path / "trace.json").exists()
    profiled = Profiled()
    run = resume(path, logs=TRACED, callback=profiled)
    assert profiled.seen == [(1, 8), (1, 9), (1, 10)]
    assert trace_of(run)
    plain = run_of("gmf", dataset, tmp_path / "plain", epochs=1, batch_size=size)
    assert weights_of(run) == weights_of(plain)
    assert not (plain.path / "trace.json").exists()


def test_the_profiler_keeps_to_itself(dataset: Dataset, tmp_path: Path) -> None:
    """The profiler runs in a process of its own, because it decides once what it prints."""
    code = (
        "import sys; from foretaste.cli.app import main; main(sys.argv[1:]);"
        "print({'torch._dynamo', 'torch._inductor'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code, "train", "gmf", dataset.path, "--trace"]
    options = ["--epochs", "1", "--factors", "2", "--device", "cpu", "--run", tmp_path / "run"]
    done = subprocess.run(
        [*map(str, command + options)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.endswith("set()\n"), "PyTorch's compiler takes seconds to import"
    assert (tmp_path / "run" / "trace.json").is_file()


def test_spans_are_named_for_profilers() -> None:
    with torch.autograd.profiler.profile(use_kineto=True) as heard:
        assert list(in_spans("next", [1, 2])) == [1, 2]
        with span("heard"):
            torch.ones(1)
    names = Counter(event.name for event in heard.function_events)
    assert (names["heard"], names["next"]) == (1, 3)

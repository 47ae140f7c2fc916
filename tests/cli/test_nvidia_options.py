"""Every option of the reference scripts has here the effect that its name promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foretaste.runs import Run
from tests.cli.conftest import Done, Foretaste, refused
from tests.messages import says

EVALUATED = "evaluation"
NEUMF = "train neumf data -f 4 --layers 8 4 -e 2 -b 4096"


@dataclass
class Trained:
    """One training and all of its results."""

    done: Done
    run: Run
    root: Path

    def asked(self, name: str) -> Any:
        return self.run.config.asked[name]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.run.log.read() if event["event"] == kind]

    def evaluated_epochs(self) -> list[int]:
        """Epochs that ended with a validation."""
        splits = [
            (event["epoch"], event["evaluation"]["split"]) for event in self.events(EVALUATED)
        ]
        return [epoch for epoch, split in splits if split == "validation"]

    def spans(self) -> set[str]:
        trace = json.loads((self.run.path / "trace.json").read_text())
        return {event["name"] for event in trace["traceEvents"]}


@pytest.fixture
def train(foretaste: Foretaste, tmp_path: Path) -> Callable[[str], Trained]:
    """Trains by a command line; ROOT in it is a directory of the test's own."""

    def run(line: str) -> Trained:
        named = "--checkpoint" in line or "--run" in line
        place = "" if named else f" --run {tmp_path}/run"
        done = foretaste(line.replace("ROOT", str(tmp_path)) + place)
        assert done.status == 0, done.err
        return Trained(done, Run.open(tmp_path / "run"), tmp_path)

    return run


def is_asked(name: str, value: Any) -> Callable[[Trained], bool]:
    return lambda trained: trained.asked(name) == value


def of_model(name: str, value: Any) -> Callable[[Trained], bool]:
    return lambda trained: trained.run.config.model_config[name] == value


def _test_lengths(trained: Trained) -> set[str]:
    return set(trained.events(EVALUATED)[-1]["evaluation"]["metrics"])


def _copied(trained: Trained) -> bool:
    copy = trained.root / "logs" / "copy.json"
    return copy.read_bytes() == trained.run.log.path.read_bytes()


def _has_results(trained: Trained) -> bool:
    settings = json.loads((trained.root / "results" / "args.json").read_text())
    metrics = json.loads((trained.root / "results" / "metrics.json").read_text())
    (summary,) = metrics["summary"]
    return (
        (settings["model"], settings["epochs"]) == ("vae", 2)
        and [epoch["epoch"] for epoch in metrics["epoch"]] == [1, 2]
        and summary["best_epoch"] == trained.events("summary")[0]["best_epoch"]
        and metrics["evaluation"][-1]["evaluation"]["split"] == "test"
    )


def _left_out(trained: Trained) -> bool:
    (summary,) = trained.events("summary")
    first, second = (event["train_s"] for event in trained.events("epoch"))
    return (
        summary["num_warm_up_epochs"] == 1
        and summary["avg_epoch_s"] == summary["min_epoch_s"] == second
        and summary["train_s"] == pytest.approx(first + second)
    )


Check = Callable[[Trained], bool]

TRAININGS: dict[str, tuple[str, dict[str, Check]]] = {
    # NCF: the words after python ncf.py
    "NCF, long names": (
        "train neumf --data data --factors 4 --layers 8 4 --epochs 4 --batch-size 100 "
        "--valid-users-per-batch 7 --negative-samples 2 --learning-rate 0.0045 --topk 7 --seed 9 "
        "--amp --valid-negative 9 --beta1 0.25 --beta2 0.5 --eps 1e-7 --dropout 0.25 "
        "--checkpoint-dir ROOT/run --mode train --eval-after 1 --log-path ROOT/logs/copy.json "
        "--no-neg-trick --verbose --xla --device cpu",
        {
            "--data": lambda t: t.run.config.dataset.name == "data",
            "--factors": of_model("factors", 4),
            "--layers": of_model("layers", [8, 4]),
            "--epochs": lambda t: len(t.events("epoch")) == 4,
            "--batch-size": is_asked("batch_size", 100),
            "--valid-users-per-batch": is_asked("evaluation_batch", 7),
            "--negative-samples": lambda t: (
                t.events("start")[0]["num_samples"] == 3 * t.events("start")[0]["num_interactions"]
            ),
            "--learning-rate": is_asked("learning_rate", 0.0045),
            "--topk": lambda t: t.asked("select_by") == "hr@7" and "hr@7" in _test_lengths(t),
            "--seed": is_asked("seed", 9),
            "--amp": is_asked("precision", "bf16"),
            "--valid-negative": lambda t: (
                {event["evaluation"]["candidates"] for event in t.events(EVALUATED)} == {"nvidia-9"}
            ),
            "--beta1": is_asked("beta1", 0.25),
            "--beta2": is_asked("beta2", 0.5),
            "--eps": is_asked("eps", 1e-7),
            "--dropout": of_model("dropout", 0.25),
            "--checkpoint-dir": lambda t: t.run.has_weights,
            "--mode": lambda t: len(t.events("summary")) == 1,
            "--eval-after": lambda t: t.evaluated_epochs() == [2, 3, 4],
            "--log-path": _copied,
            "--no-neg-trick": of_model("verified_negatives", True),
            "--verbose": lambda t: "ndcg@7" in t.done.out.partition("\n\n ended")[0],
        },
    ),
    "NCF, short names": (
        "train neumf data -f 4 --layers 8,4 -e 2 -b 4096 -n 2 -l 0.0045 -k 50 -s 9 -t 0.0001 "
        "--fp16 -b1 0.25 -b2=0.5 --device=cpu",
        {
            "-f": of_model("factors", 4),
            "--layers": of_model("layers", [8, 4]),
            "-e": is_asked("epochs", 2),
            "-b": is_asked("batch_size", 4096),
            "-n": of_model("negatives", 2),
            "-l": is_asked("learning_rate", 0.0045),
            "-k": lambda t: t.events("summary")[0]["select_by"] == "hr@50",
            "-s": is_asked("seed", 9),
            "-t": lambda t: t.events("summary")[0]["stopped_because"] == "hr@50 reached 0.0001",
            "--fp16": is_asked("precision", "bf16"),
            "-b1": is_asked("beta1", 0.25),
            "-b2": is_asked("beta2", 0.5),
        },
    ),
    "NCF, fp16": (
        f"{NEUMF} --loss-scale 128 --amp --target 0.0001",
        {
            "--loss-scale": lambda t: (
                t.asked("precision") == "fp16" and t.events("epoch")[0]["loss_scale"] == 128.0
            ),
            "--target": lambda t: t.events("summary")[0]["target_epoch"] == 1,
        },
    ),
    "NCF, from a checkpoint": (
        "train gmf data -f 8 -e 1 --load-checkpoint-path runs/gmf",
        {
            "--load-checkpoint-path": lambda t: (
                list(t.events("start")[0]["started_from"]) == ["runs/gmf"]
            )
        },
    ),
    # VAE-CF: the words after python main.py
    "VAE-CF": (
        "train vae --train --data_dir . --hidden 8 --latent 4 --epochs 2 --batch_size_train 64 "
        "--batch_size_validation 50 --validation_step 2 --warm_up_epochs 1 --total_anneal_steps 40 "
        "--lam 0.5 --lr 0.004 --top_results 30 --trace --activation relu --beta1 0.9 --seed 3 "
        "--checkpoint_dir ROOT/run --log_path ROOT/logs/copy.json --results_dir ROOT/results",
        {
            "--train": lambda t: len(t.events("summary")) == 1,
            "--data_dir": lambda t: t.run.config.dataset.name == "data",
            "--batch_size_train": is_asked("batch_size", 64),
            "--batch_size_validation": is_asked("evaluation_batch", 50),
            "--validation_step": lambda t: t.evaluated_epochs() == [2],
            "--warm_up_epochs": _left_out,
            "--total_anneal_steps": lambda t: t.events("epoch")[1]["beta"] == 3 / 40,
            "--lam": of_model("l2", 0.5),
            "--lr": is_asked("learning_rate", 0.004),
            "--top_results": is_asked("select_by", "ndcg@30"),
            "--trace": lambda t: {"data", "forward", "backward", "step"} <= t.spans(),
            "--activation": of_model("activation", "relu"),
            "--checkpoint_dir": lambda t: t.run.has_weights,
            "--log_path": _copied,
            "--results_dir": _has_results,
        },
    ),
    "VAE-CF, dataset named": (
        "train vae data --data_dir . --hidden 8 --latent 4 --epochs 1 --batch_size_train 64 "
        "--total_anneal_steps 1 --anneal_cap 0.3",
        {
            "--data_dir": lambda t: t.run.config.dataset.name == "data",
            "--anneal_cap": lambda t: t.events("epoch")[0]["beta"] == 0.3,
        },
    ),
}
"""Command lines, and the result of each option."""


@pytest.mark.parametrize("name", TRAININGS)
def test_options_of_training_act(name: str, train: Callable[[str], Trained]) -> None:
    line, checks = TRAININGS[name]
    trained = train(line)
    assert [option for option, acted in checks.items() if not acted(trained)] == []


EVALUATIONS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bool]]] = {
    "--load-checkpoint-path": (
        "train neumf --mode test --load-checkpoint-path runs/gmf/model.ckpt",
        lambda rows: {row["run"] for row in rows} == {"runs/gmf"},
    ),
    "--topk, --valid-negative": (
        "train neumf data --mode test --checkpoint-dir runs/gmf --topk 7 --valid-negative 9",
        lambda rows: (
            {(row["metric"].partition("@")[2], row["candidates"]) for row in rows}
            == {("7", "nvidia-9")}
        ),
    ),
    "--top_results": (
        "train vae --test --checkpoint_dir runs/vae --top_results 30",
        lambda rows: {row["metric"].partition("@")[2] for row in rows} == {"30"},
    ),
    "evaluate": (
        "evaluate runs/gmf --valid-negative 9 --topk 3 --valid-users-per-batch 5",
        lambda rows: {row["candidates"] for row in rows} == {"nvidia-9"},
    ),
}


@pytest.mark.parametrize("option", EVALUATIONS)
def test_an_option_of_testing_acts(option: str, foretaste: Foretaste) -> None:
    line, acted = EVALUATIONS[option]
    done = foretaste(f"{line} --format json")
    assert done.status == 0, done.err
    assert acted(json.loads(done.out))


def test_an_evaluation_is_logged(foretaste: Foretaste, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "test.json"
    done = foretaste(f"train vae --test --checkpoint_dir runs/vae --log_path {log}")
    assert done.status == 0, done.err
    assert done.err == ""
    schema, event = map(json.loads, log.read_text().splitlines())
    assert schema["event"] == "schema"
    assert event["evaluation"]["split"] == "test"
    before = log.read_bytes()
    refused(foretaste(f"evaluate runs/vae --log-path {log}"), "log_path", log, "--overwrite")
    assert log.read_bytes() == before
    again = foretaste(f"train vae --test --checkpoint_dir runs/gmf --log_path {log}")
    assert again.status == 0
    says(again.err, log, "--overwrite")
    assert log.read_bytes() != before
    assert foretaste(f"evaluate runs/gmf --log-path {log} --overwrite").status == 0


def test_options_of_training_are_idle_in_a_test(foretaste: Foretaste) -> None:
    training = "--amp -e 30 -b 1048576 -n 4 -l 0.0045 -b1 0.25 --seed 1 --dropout 0.5 --xla"
    done = foretaste(f"train gmf --mode test --checkpoint-dir runs/gmf -f 8 {training}")
    assert done.status == 0, done.err
    note, _, _ = done.err.partition("\n")
    says(note, "-f, --amp, -e, -b, -n, -l, -b1, --seed, --dropout, --xla", "fp32")

"""`foretaste.train`: from a dataset to a run directory."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from foretaste.data import Dataset, prepare
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.result import Evaluation, compare_evaluations
from foretaste.measure import evaluate_run
from foretaste.models.neumf.config import MLPConfig
from foretaste.models.registry import config_class
from foretaste.recommend import Recommender
from foretaste.runs import Run, load_model
from foretaste.training import Callback, LogConfig, TrainingConfig, train
from foretaste.training.callbacks import EpochReport, TrainingStart, TrainingSummary
from foretaste.training.validation import TEST_LENGTHS
from tests.training.trainings import events, run_of, weights_of


def value_of(run: Run, evaluation: dict[str, Any]) -> float:
    return float(evaluation["evaluation"]["metrics"][run.config.resolved["select_by"]]["value"])


@pytest.fixture(scope="module")
def run(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A training of three epochs."""
    return run_of("neumf", dataset, tmp_path_factory.mktemp("trained") / "run")


def test_metrics_jsonl_tells_the_training(run: Run) -> None:
    lines = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    assert [kind for kind in kinds if kind != "weights"] == [
        "schema",
        "start",
        *["epoch", "evaluation"] * 3,
        "evaluation",
        "summary",
    ]
    units = json.loads(lines[0])["units"]
    assert all(json.loads(line).keys() <= units.keys() for line in lines[1:])
    epochs = events(run, "epoch")
    assert [event["epoch"] for event in epochs] == [1, 2, 3]
    assert all(event["loss"] > 0 and event["samples_per_s"] > 0 for event in epochs)
    splits = [event["evaluation"]["split"] for event in events(run, "evaluation")]
    assert splits == ["validation"] * 3 + ["test"]
    assert run.open_weights().note["epoch"] == events(run, "summary")[0]["best_epoch"]


def test_the_summary_agrees_with_the_epochs(run: Run) -> None:
    (summary,) = events(run, "summary")
    (start,) = events(run, "start")
    epoch_s = [event["train_s"] for event in events(run, "epoch")]
    values = [value_of(run, event) for event in events(run, "evaluation")[:-1]]
    assert summary["num_epochs"] == 3
    assert summary["min_epoch_s"] == pytest.approx(min(epoch_s))
    assert summary["avg_epoch_s"] == pytest.approx(sum(epoch_s) / 3)
    assert summary["train_s"] == pytest.approx(sum(epoch_s))
    assert summary["samples_per_s"] == pytest.approx(start["num_samples"] * 3 / sum(epoch_s))
    assert summary["best_value"] == max(values)
    assert summary["best_epoch"] == values.index(max(values)) + 1
    assert summary["selection_split"] == "validation"
    assert summary["select_by"] == "ndcg@10"
    assert summary["memory_mib"] > 1
    assert start["num_steps"] * 3 == events(run, "epoch")[-1]["step"]


@pytest.mark.parametrize("model", ["ease", "gmf"])
def test_popularity_is_compared_with_the_model_on_the_users_who_choose(
    model: str, dataset: Dataset, tmp_path: Path
) -> None:
    run = run_of(model, dataset, tmp_path / "run", epochs=3)
    baseline = run_of("popularity", dataset, tmp_path / "popularity")
    (summary,) = events(run, "summary")
    split = "validation" if model == "gmf" else "test"
    own, popularity = (evaluate_run(one, split=split, k=[10]) for one in (run, baseline))
    expected = compare_evaluations(popularity, own)["ndcg@10"]
    found = summary["popularity"]
    assert found["metric"] == "ndcg@10"
    assert found["value"] == pytest.approx(popularity["ndcg@10"])
    assert [found["gain"], found["low"], found["high"]] == pytest.approx(
        [expected.value, expected.low, expected.high]
    )
    (of_itself,) = events(baseline, "summary")
    assert of_itself["popularity"] == {}  # popularity is not compared with itself


def test_popularity_beside_a_model_counts_people_whatever_the_weights(
    table: pa.Table, dataset: Dataset, tmp_path: Path
) -> None:
    weighted = prepare(table, tmp_path / "data", protocol="leave-one-out", half_life="1d")
    (summary,) = events(run_of("ease", weighted, tmp_path / "run"), "summary")
    plain, of_weights = (
        evaluate_run(run_of("popularity", data, tmp_path / name), k=[10])["ndcg@10"]
        for data, name in ((dataset, "plain"), (weighted, "weighted"))
    )
    assert plain != of_weights
    assert summary["popularity"]["value"] == pytest.approx(plain)


@pytest.mark.parametrize("name", ["neumf", "vae"])
def test_the_best_epoch_is_what_a_training_of_that_length_gives(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    """The best epoch's weights are saved, and evaluating does not change the training."""
    settings = {"learning_rate": 0.1, "learning_rate_schedule": "constant"}
    whole = run_of(name, dataset, tmp_path / "whole", epochs=6, patience=0, **settings)
    (summary,) = events(whole, "summary")
    assert summary["best_epoch"] < 6
    short = run_of(
        name,
        dataset,
        tmp_path / "short",
        epochs=summary["best_epoch"],
        eval_every=summary["best_epoch"],
        **settings,
    )
    assert weights_of(short) == weights_of(whole)


def test_with_nothing_held_out_every_epoch_runs(everything: Dataset, tmp_path: Path) -> None:
    run = run_of("gmf", everything, tmp_path / "run", epochs=4, patience=1)
    (summary,) = events(run, "summary")
    assert summary["num_epochs"] == summary["best_epoch"] == 4
    assert summary["best_value"] is None
    assert summary["selection_split"] is None
    assert not events(run, "evaluation")
    assert run.has_weights


@pytest.mark.parametrize(
    ("settings", "everyone"),
    [({}, False), ({"target": 0.99}, True), ({"candidates": "sampled-9"}, True)],
)
def test_a_few_users_of_the_test_part_select_and_everyone_is_the_final_number(
    test_only: Dataset, tmp_path: Path, settings: dict[str, Any], everyone: bool
) -> None:
    run = run_of("gmf", test_only, tmp_path / "run", validation_users=7, **settings)
    assert events(run, "summary")[0]["selection_split"] == "test"
    evaluations = [event["evaluation"] for event in events(run, "evaluation")]
    assert {evaluation["split"] for evaluation in evaluations} == {"test"}
    num_users = [evaluation["num_users"] for evaluation in evaluations]
    num_all = test_only.heldout("test").num_users
    assert num_users[0] == (num_all if everyone else 7)
    assert num_users[-1] == num_all > 7


def test_the_test_part_that_selects_is_ranked_once_an_epoch(
    test_only: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best epoch's evaluation is the final one, equal to what ranking its weights gives."""
    ranked = []

    def counted(*words: Any, **settings: Any) -> Evaluation:
        ranked.append(words[0].name)
        return evaluate(*words, **settings)

    monkeypatch.setattr("foretaste.training.validation.evaluate", counted)
    settings = {"epochs": 6, "learning_rate": 1.0, "patience": 0, "candidates": "nvidia-10"}
    run = run_of("gmf", test_only, tmp_path / "run", **settings)
    assert ranked == ["gmf"] * 6 + ["popularity"]
    *of_epochs, final = (event["evaluation"] for event in events(run, "evaluation"))
    (summary,) = events(run, "summary")
    assert final == of_epochs[summary["best_epoch"] - 1]
    again = evaluate(
        load_model(run, "cpu"),
        test_only.heldout("test"),
        candidates="nvidia-10",
        k=TEST_LENGTHS,
    )
    assert {name: metric["value"] for name, metric in final["metrics"].items()} == {
        name: pytest.approx(again[name]) for name in final["metrics"]
    }


def test_the_only_epoch_that_is_evaluated_is_ranked_once(
    test_only: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = []

    def counted(*words: Any, **settings: Any) -> Evaluation:
        ranked.append((words[0].name, words[1].num_users))
        return evaluate(*words, **settings)

    monkeypatch.setattr("foretaste.training.validation.evaluate", counted)
    settings: dict[str, Any] = {"epochs": 2, "validation_users": 7}
    once = run_of("gmf", test_only, tmp_path / "once", eval_every=2, **settings)
    num_all = test_only.heldout("test").num_users
    assert ranked == [("gmf", num_all), ("popularity", 7)]
    ranked.clear()
    twice = run_of("gmf", test_only, tmp_path / "twice", **settings)
    assert [num_users for _, num_users in ranked] == [7, 7, num_all, 7]
    assert once.metrics is not None
    assert twice.metrics is not None
    assert once.metrics.metrics == twice.metrics.metrics


@pytest.mark.parametrize("name", ["popularity", "ease", "ease neighbors", "itemknn", "rp3beta"])
def test_closed_forms_are_fitted_in_one_pass(name: str, dataset: Dataset, tmp_path: Path) -> None:
    name, _, setting = name.partition(" ")
    config = config_class(name)(**{setting: 5}) if setting else None
    run = run_of(name, dataset, tmp_path / "run", model_config=config)
    kinds = [event["event"] for event in run.log.read()]
    assert kinds == ["schema", "start", "evaluation", "summary"]
    (summary,) = events(run, "summary")
    assert summary["stopped_because"] == "fitted in one pass"
    assert summary["best_epoch"] is None
    given = vars(config or config_class(name)())
    chosen = {
        setting: value
        for setting, value in run.config.model_config.items()
        if given[setting] == "auto"
    }
    assert "auto" not in chosen.values()
    assert run.config.resolved == {"device": "cpu", "candidates": "full", **chosen}


def test_the_run_remembers_what_was_asked_and_what_it_became(
    dataset: Dataset, tmp_path: Path
) -> None:
    run = Run.open(run_of("neumf", dataset, tmp_path / "run", seed=11).path)
    assert run.config.asked["batch_size"] == "auto"
    assert run.config.asked["negatives"] == "auto"
    assert run.config.resolved["negatives"] == 4
    assert isinstance(run.config.resolved["batch_size"], int)
    assert "auto" not in run.config.resolved.values()
    assert "loss" not in run.config.resolved, "as it was asked for"
    assert run.config.asked["seed"] == 11
    given = {"factors": 4, "layers": [8, 8, 4], "dropout": 0.5, "negatives": 4}
    assert run.config.model_config.items() >= given.items()
    assert run.config.dataset.digest == dataset.manifest.digest
    gmf = train("gmf", dataset, epochs=1, factors=4, device="cpu", run=tmp_path / "gmf").config
    assert gmf.model_config["temperature"] is None
    assert gmf.resolved["temperature"] == 0.15


class Recording(Callback):
    """Records every call in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def started(self, start: TrainingStart) -> None:
        self.calls.append(("started", start))

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.calls.append(("stepped", (epoch, step, num_steps_per_epoch)))

    def evaluating(self, split: str, num_done: int, num_users: int) -> None:
        self.calls.append(("evaluating", (split, num_done, num_users)))

    def epoch_done(self, report: EpochReport) -> None:
        self.calls.append(("epoch_done", report))

    def finished(self, summary: TrainingSummary) -> None:
        self.calls.append(("finished", summary))


def test_progress_is_reported_in_order(dataset: Dataset, tmp_path: Path) -> None:
    recording = Recording()
    run_of("gmf", dataset, tmp_path / "run", callback=recording, epochs=2, batch_size=1000)
    kinds = [kind for kind, _ in recording.calls]
    assert kinds[0] == "started"
    assert kinds[-1] == "finished"
    assert kinds.count("epoch_done") == 2
    start, summary = recording.calls[0][1], recording.calls[-1][1]
    assert start.num_steps_per_epoch == 4
    assert start.num_interactions == dataset.manifest.num_interactions
    assert start.num_samples == 5 * start.num_interactions
    assert start.plan.batch_size == 1000
    steps = [call for kind, call in recording.calls if kind == "stepped"]
    assert steps == [(epoch, step, 4) for epoch in (1, 2) for step in (1, 2, 3, 4)]
    evaluating = [call for kind, call in recording.calls if kind == "evaluating"]
    assert {split for split, _, _ in evaluating} == {"validation", "test"}
    assert all(0 < done <= of for _, done, of in evaluating)
    assert summary.test.split == "test"


def test_a_run_is_named_after_model_dataset_and_time(dataset: Dataset, tmp_path: Path) -> None:
    runs = [
        train("popularity", dataset, config=TrainingConfig(device="cpu"), runs_root=tmp_path)
        for _ in range(3)
    ]
    assert len({run.path for run in runs}) == 3
    assert all(run.path.parent == tmp_path for run in runs)
    assert all(run.path.name.startswith("popularity-small-") for run in runs)


def test_a_free_name_that_another_process_takes_is_no_error(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = run_of("popularity", dataset, tmp_path / "taken").path
    offered = iter([taken, tmp_path / "free"])
    monkeypatch.setattr("foretaste.training.api.unused_run_path", lambda *_: next(offered))
    run = train("popularity", dataset, config=TrainingConfig(device="cpu"), runs_root=tmp_path)
    assert run.path == tmp_path / "free"


def test_a_metric_is_selected_by_however_it_is_spelled(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("gmf", dataset, tmp_path / "run", select_by=" NDCG@10 ", epochs=1)
    assert events(run, "summary")[0]["select_by"] == "ndcg@10"


def test_settings_by_name_equal_settings_in_configs(table: pa.Table, tmp_path: Path) -> None:
    """Settings of the training, the model, its negatives, its logs, and the preparation of a raw
    table."""
    dataset = prepare(table, tmp_path / "data", protocol="held-out-users", num_heldout_users=5)
    expected = train(
        "mlp",
        dataset,
        model_config=MLPConfig(layers=(8, 4), negatives=2),
        config=TrainingConfig(epochs=2, device="cpu", seed=3),
        logs=LogConfig(log_path=tmp_path / "first.jsonl"),
        run=tmp_path / "first",
    )
    with chdir(tmp_path):
        found = train(
            "mlp",
            table,
            layers=[8, 4],
            epochs=2,
            config=TrainingConfig(epochs=7, device="cpu"),
            seed=3,
            negatives=2,
            log_path=tmp_path / "second.jsonl",
            protocol="held-out-users",
            num_heldout_users=5,
            run=tmp_path / "second",
        )
    assert found.config.dataset.digest == expected.config.dataset.digest
    for name in ("model", "asked", "resolved"):
        assert getattr(found.config, name) == getattr(expected.config, name)
    assert weights_of(found) == weights_of(expected)
    assert (tmp_path / "second.jsonl").exists()


def test_a_model_fitted_in_one_pass_takes_what_acts_on_it(dataset: Dataset, tmp_path: Path) -> None:
    run = train("ease", dataset, l2=9.0, candidates="sampled-9", run=tmp_path / "run")
    assert run.config.model_config.items() >= {"l2": 9.0, "dropout": 0.5}.items()
    assert run.config.resolved["candidates"] == "sampled-9"


def test_a_training_computes_with_as_many_threads_as_asked(
    dataset: Dataset, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    run = train("vae", dataset, epochs=1, threads=before + 1, run=tmp_path / "run")
    assert run.config.hardware["num_threads"] == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["sasrec", "slist"])
def test_held_out_items_train_nothing(name: str, tmp_path: Path) -> None:
    """The weights keep their bytes if other items are held out for validation and test."""
    rng = np.random.default_rng(5)
    orders = [rng.permutation(12) for _ in range(40)]
    found = []
    for number, newest in enumerate((slice(6, 8), slice(8, 10))):
        rows = [
            (user, item) for user, row in enumerate(orders) for item in [*row[:6], *row[newest]]
        ]
        users, items = zip(*rows, strict=True)
        table = pa.table({"user_id": users, "item_id": items})
        data = prepare(table, tmp_path / f"data-{number}", protocol="leave-one-out", order="rows")
        assert data.manifest.num_items == 12
        settings = {"epochs": 2, "eval_every": 2} if name == "sasrec" else {"search": False}
        found.append(weights_of(train(name, data, run=tmp_path / f"run-{number}", **settings)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["sasrec", "slist", "itemknn"])
def test_people_with_one_item_are_counted(name: str, tmp_path: Path) -> None:
    """People with one item give no step to learn from, and get answers."""
    users, items = zip(*((user, item) for user in range(9) for item in range(3)), strict=True)
    table = pa.table({"user_id": [*users, 20, 21], "item_id": [*items, 1, 2]})
    started: list[TrainingStart] = []
    told = Callback()
    told.started = started.append  # type: ignore[method-assign]
    settings: dict[str, Any] = {"epochs": 1} if name == "sasrec" else {}
    data = prepare(table, tmp_path / "data", protocol="none", order="rows")
    run = train(name, data, run=tmp_path / "run", callback=told, **settings)
    expected = None if name == "itemknn" else "2 users with one item, which nothing follows"
    assert started[0].order == expected
    (answer,) = Recommender.open(run).recommend(20, k=1)
    assert answer.reason is None

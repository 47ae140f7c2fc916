"""Settings are searched by validation alone, with the same result after a kill; given settings are
fixed."""

from __future__ import annotations

import csv
import re
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.messages import raises, says

pytest.importorskip("optuna", reason="the extra tune is not installed")

from sqlalchemy import event

from foretaste.data import Dataset, prepare
from foretaste.errors import (
    Interrupted,
    MissingExtraError,
    RunError,
    SettingError,
    TrainingError,
)
from foretaste.measure import evaluate_run
from foretaste.models.config import Between, SearchSpace
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.runs import Run
from foretaste.runs.places import LOCK
from foretaste.training import Callback, train
from foretaste.training.callbacks import EpochReport
from foretaste.training.request import TrainRequest
from foretaste.training.search import SearchResult
from foretaste.tune import Search, compete, tune_model
from foretaste.tune.directory import SETTINGS, trainings_at
from foretaste.tune.study import Study
from tests.cli.conftest import call
from tests.tune.test_competition import Trained, note_of

GMF: dict[str, Any] = {
    "epochs": 3,
    "eval_every": 1,
    "batch_size": 512,
    "negatives": 2,
    "loss": "bce",
}


@pytest.fixture(scope="module")
def search(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Search:
    place = tmp_path_factory.mktemp("search") / "a name? of #5"
    return tune_model("gmf", dataset, trials=6, output=place, callback=Callback(), **GMF)


def test_the_first_trial_has_the_defaults(search: Search) -> None:
    config = Run.open(search.trials[0].run).config
    assert search.trials[0].settings == {"learning_rate": 0.002, "factors": 64}
    assert config.model_config["factors"] == 64
    assert len({tuple(one.settings.values()) for one in search.trials}) > 3


@pytest.mark.parametrize("model", ["ease", "ials"])
def test_the_first_trial_has_what_train_chooses(
    dataset: Dataset, tmp_path: Path, model: str
) -> None:
    usual = train(model, dataset, run=tmp_path / "usual", callback=Callback())
    given = {"output": tmp_path / "it", "callback": Callback()}
    search = tune_model(model, dataset, trials=1, **given)
    tried = Run.open(search.best.run)
    assert tried.config.model_config.items() >= usual.config.search["settings"].items()
    assert tried.metrics is not None
    assert usual.metrics is not None
    assert tried.metrics.metrics == usual.metrics.metrics
    assert "--no-search" in search.command()


@pytest.mark.parametrize(
    ("model", "chosen"), [("ials", {"regularization": 0.001}), ("ease", {"neighbors": 3})]
)
def test_the_command_repeats_the_rule_and_a_chosen_value(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, chosen: Any
) -> None:
    """The neighbours of ease are chosen as well, and are no setting of a trial."""
    found = SearchResult(record={"settings": chosen})
    monkeypatch.setattr("foretaste.tune.search.chosen_settings", lambda *_: found)
    search = tune_model(model, dataset, trials=1, output=tmp_path / "it", callback=Callback())
    done = call(*shlex.split(search.command())[1:], "--run", tmp_path / "again")
    assert done.status == 0, done.err
    again, best = Run.open(tmp_path / "again").config, Run.open(search.best.run).config
    assert (again.model_config, again.resolved) == (best.model_config, best.resolved)
    assert best.model_config.items() >= chosen.items()


def test_the_best_trial_is_the_best_by_validation(search: Search) -> None:
    assert [one.number for one in search.trials] == list(range(6))
    assert {one.state for one in search.trials} <= {"complete", "pruned"}
    complete = [one for one in search.trials if one.state == "complete"]
    assert search.best.value == max(one.value or 0 for one in complete)
    for one in complete:
        summary = Run.open(one.run).log.read()[-1]
        assert (summary["selection_split"], summary["best_value"]) == ("validation", one.value)


def test_the_command_repeats_the_best_run(search: Search, tmp_path: Path) -> None:
    words = shlex.split(search.command())[1:]
    done = call(*words, "--run", tmp_path / "again")
    assert done.status == 0, done.err
    again, best = Run.open(tmp_path / "again"), Run.open(search.best.run)
    assert (again.config.asked, again.config.model_config) == (
        best.config.asked,
        best.config.model_config,
    )
    assert again.metrics is not None
    assert best.metrics is not None
    assert again.metrics.metrics == best.metrics.metrics


def test_the_trials_are_written_as_tables(search: Search) -> None:
    with (search.path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == [one.state for one in search.trials]
    assert "ndcg@10" in (search.path / "table.md").read_text()
    assert str(search.best.run) in (search.path / "table.json").read_text()


class Stopping(Callback):
    """Sends a signal after a number of epochs."""

    def __init__(self, num_epochs: int) -> None:
        self.num_left = num_epochs

    def epoch_done(self, report: EpochReport) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            signal.raise_signal(signal.SIGTERM)


def test_more_trials_continue_after_the_last_and_after_an_interruption(
    dataset: Dataset, search: Search, tmp_path: Path
) -> None:
    """The trials equal the trials of one whole search that was not interrupted."""
    output = tmp_path / "it"
    arguments = {"output": output, **GMF}
    expected = tuple(replace(one, run=output / one.run.name) for one in search.trials)
    few = tune_model("gmf", dataset, trials=3, callback=Callback(), **arguments)
    assert few.trials == expected[:3]
    with raises(Interrupted, output):
        tune_model("gmf", dataset, trials=6, callback=Stopping(2), **arguments)
    trained = Trained()
    again = tune_model("gmf", dataset, trials=6, callback=trained, **arguments)
    assert (len(trained.models), trained.resumed) == (3, ["gmf"])
    assert again.trials == expected


def test_half_written_settings_of_a_killed_process_are_ignored(tmp_path: Path) -> None:
    space = {"a": Between(0.0, 1.0), "b": (("x",), ("y",))}

    def proposals(path: Path, *, killed: int | None) -> list[dict[str, Any]]:
        path.mkdir()
        for number in range(4):
            study = Study(path, space, seed=3)
            study.begin(lambda: {"a": 2.0, "b": ("y",)})
            if number == killed:
                if killed == 0:
                    study._study.enqueue_trial({"a": 1.0, "b": 1})
                study._study.ask({"a": study._distributions["a"]})
            trial = study.next_trial()
            study.complete(trial, study.settings(trial)["a"])
            found = [study.settings(one) for one in study.finished]
            study.close()
        return found

    whole = proposals(tmp_path / "whole", killed=None)
    assert whole[0] == {"a": 2.0, "b": ("y",)}, "the defaults, outside of the range too"
    assert proposals(tmp_path / "first", killed=0) == whole
    assert proposals(tmp_path / "later", killed=2) == whole
    assert len({one["a"] for one in whole}) == 4


def test_a_directory_of_a_process_killed_at_its_start_is_used_again(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with trainings_at(tmp_path, {"trials": 3}):
        assert (tmp_path / SETTINGS).is_file()


def test_auto_is_tried_first_and_then_numbers(tmp_path: Path) -> None:
    space: SearchSpace = {"w": Between(0.01, 1.0, log=True), "n": Between(2, 8)}
    study = Study(tmp_path, space, seed=3)
    study.begin(lambda: {"w": "auto", "n": "auto"})
    trial = study.next_trial()
    assert study.settings(trial) == {"w": "auto", "n": "auto"}
    assert trial.params == {"w": pytest.approx(0.1), "n": 5}
    study.complete(trial, 0.5)
    assert isinstance(study.settings(study.next_trial())["w"], float)
    assert study.settings(study.finished[0]) == {"w": "auto", "n": "auto"}


def test_a_trial_that_does_worse_than_the_median_is_stopped(
    dataset: Dataset, tmp_path: Path
) -> None:
    study = Study(tmp_path, {"a": Between(0.0, 1.0)}, seed=1)
    study.begin(lambda: {"a": 0.5})
    from foretaste.tune.study import Pruned, Pruning
    from tests.tune.test_competition import entry

    def validate(trial: Any, value: float, epoch: int = 5) -> None:
        evaluation = entry("x", value, 1.0, None).evaluation
        report = EpochReport(
            epoch=epoch, step=1, loss=1.0, train_s=1.0, samples_per_s=1.0, settings={},
            evaluation=evaluation, is_best=True,
        )  # fmt: skip
        Pruning(trial, "ndcg@10").epoch_done(report)
        Pruning(trial, "ndcg@10").epoch_done(report)

    for value in (0.5, 0.6, 0.4, 0.5, 0.5):
        trial = study.next_trial()
        validate(trial, value)
        study.complete(trial, value)
    good, bad = study.next_trial(), None
    validate(good, 0.55)
    study.complete(good, 0.55)
    bad = study.next_trial()
    validate(bad, 0.1, epoch=4)
    with pytest.raises(Pruned):
        validate(bad, 0.3)
    study.prune(bad)
    assert study.finished[-1].state.name == "PRUNED"


def test_no_trial_begins_after_the_time(dataset: Dataset, tmp_path: Path) -> None:
    arguments = {"output": tmp_path / "it", "callback": Callback()}
    search = tune_model("ease", dataset, trials=5, time_s=1e-6, **arguments)
    assert len(search.trials) == 1
    assert len(tune_model("ease", dataset, trials=2, time_s=600, **arguments).trials) == 2


def test_a_trial_that_fails_is_recorded(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretaste.models.linear.ease import Ease

    fit = Ease.fit

    def fragile(self: Ease, histories: Any, progress: Any) -> None:
        if self.config.l2 != 200:
            raise RuntimeError("out of memory")
        fit(self, histories, progress)

    monkeypatch.setattr(Ease, "fit", fragile)
    arguments = {"output": tmp_path / "it", "callback": Callback()}
    search = tune_model("ease", dataset, trials=2, **arguments)
    assert [one.state for one in search.trials] == ["complete", "failed"]
    assert search.best.number == 0
    (note,) = (one for one in search.notes() if "out of memory" in one)
    says(note, 1, "out of memory")
    monkeypatch.setattr(Ease, "fit", lambda *_: sys.modules["torch"].empty(1 << 60))
    with raises(TrainingError, tmp_path / "none", re.compile(r"(?<=failed: )[^\0]*")):
        tune_model("ease", dataset, trials=1, output=tmp_path / "none", callback=Callback())


def test_an_error_that_settings_do_not_cause_ends_the_search_and_it_resumes(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {"trials": 2, "output": tmp_path / "it", "callback": Callback()}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_weights", _full_disk)
        with pytest.raises(RunError, match="full"):
            tune_model("ease", dataset, **arguments)
    search = tune_model("ease", dataset, **arguments)
    assert [(one.number, one.state) for one in search.trials] == [(0, "complete"), (1, "complete")]
    for one in search.trials:  # of a model without epochs
        assert one.value == evaluate_run(one.run, split="validation")["ndcg@10"]


def _full_disk(*_: object) -> None:
    raise RunError("the disk is full")


def test_a_disk_that_is_full_for_the_trials_is_one_message(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"output": tmp_path / "it", "callback": Callback()}
    tune_model("ease", dataset, trials=1, **arguments)
    begin = Study.__init__

    def begin_on_a_full_disk(study: Study, *args: Any) -> None:
        begin(study, *args)

        @event.listens_for(study._storage.engine, "connect")
        def _(connection: Any, _: object) -> None:
            connection.execute("PRAGMA max_page_count = 1")  # unchanged, without one more page

        study._storage.engine.dispose()

    monkeypatch.setattr(Study, "__init__", begin_on_a_full_disk)
    with raises(RunError, tmp_path / "it" / "trials.db", "database or disk is full"):
        tune_model("ease", dataset, trials=40, **arguments)
    monkeypatch.undo()
    assert len(tune_model("ease", dataset, trials=3, **arguments).trials) >= 3


def test_mistakes(
    dataset: Dataset, search: Search, table_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = tmp_path / "it"
    with raises(SettingError, "popularity", *(one for one in MODEL_NAMES if one != "popularity")):
        tune_model("popularity", dataset, output=out)
    with raises(SettingError, "ease"):
        tune_model("ease", dataset, output=out, l2=3.0, dropout=0.1, user_power=0.2)
    with raises(SettingError, search.path, "seed", 1, 2, "--output"):
        tune_model("gmf", dataset, output=search.path, seed=2, **GMF)
    for factors in (32, 64):
        with raises(SettingError, search.path, "factors", 8, 256, factors, "--output"):
            tune_model("gmf", dataset, output=search.path, factors=factors, **GMF)
    whole = prepare(table_file, tmp_path / "whole", validation="none")
    with raises(SettingError, whole.path, "--validation hold-out"):
        tune_model("gmf", whole, output=out)
    monkeypatch.setitem(sys.modules, "foretaste.tune.study", None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "foretaste.tune.study")
    with raises(MissingExtraError, "pip install optuna"):
        tune_model("gmf", dataset, output=out)
    assert not out.exists()


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_every_search_space_is_of_settings_and_holds_the_defaults(
    model: str, dataset: Dataset
) -> None:
    from foretaste.training.auto import resolve_config

    kind = config_class(model)
    sized = kind().resolved(dataset.manifest.num_items)
    config = resolve_config(TrainRequest.of(model, dataset, model_config=sized), dataset, "cpu")
    defaults = {**vars(config), **vars(sized), **kind().resolved_settings}
    for name, values in kind.search_space.items():
        if defaults[name] in ("auto", None):
            assert isinstance(values, Between)
        elif isinstance(values, Between):
            assert values.low <= defaults[name] <= values.high, name
        else:
            assert defaults[name] in values, name


def test_models_compete_with_searched_settings(dataset: Dataset, tmp_path: Path) -> None:
    board = compete(
        dataset, models=["popularity", "ease"], tune=3, output=tmp_path, callback=Callback()
    )
    (run,) = (entry.run for entry in board.entries if entry.model == "ease")
    again = tune_model("ease", dataset, trials=3, output=tmp_path / "ease", callback=Trained())
    assert run == again.best.run
    says(note_of(board, "3 trials"), 3)
    assert (tmp_path / "popularity" / "config.json").exists()


SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 2048, "negatives": 2}


@pytest.mark.parametrize(
    ("model", "given", "searched"),
    [
        ("gmf", {}, ["learning_rate", "factors", "temperature", "logit_adjustment"]),
        ("gmf", {"loss": "bce"}, ["learning_rate", "factors"]),
        ("gmf", {"temperature": 0.1}, ["learning_rate", "factors", "logit_adjustment"]),
        ("mlp", {"batch_layout": "shuffled"}, ["learning_rate", "layers", "dropout"]),
    ],
)
def test_settings_that_contradict_given_ones_are_not_tried(
    dataset: Dataset, tmp_path: Path, model: str, given: dict[str, Any], searched: list[str]
) -> None:
    """A temperature divides the cosines of softmax alone, which takes no shuffled batches."""
    given = {"output": tmp_path / "it", "callback": Callback(), **SHORT, **given}
    assert [*tune_model(model, dataset, trials=1, **given).best.settings] == searched


def test_a_trial_whose_choices_contradict_each_other_fails(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {"loss": ("softmax", "bce"), "batch_layout": ("grouped", "shuffled")}
    monkeypatch.setattr(config_class("mlp"), "search_space", space)
    given = {"output": tmp_path / "it", "callback": Callback(), "layers": (8, 4), **SHORT}
    search = tune_model("mlp", dataset, trials=8, **given)
    contradict = {"loss": "softmax", "batch_layout": "shuffled"}
    failed = [one.settings == contradict for one in search.trials]
    assert [one.state == "failed" for one in search.trials] == failed
    assert {*failed} == {True, False}
    reasons = [one.reason for one in search.trials if one.reason]
    for reason in {*reasons}:
        says(reason, "softmax", "batch_layout", "grouped")


def test_weights_are_tried_and_left_out(tmp_path: Path) -> None:
    """Weights are tried if the interactions have some and the model takes them."""
    rows = [(user, item) for user in range(20) for item in range(12) if (user + item) % 2]
    users, items = zip(*rows, strict=True)
    table = pa.table({"user_id": users, "item_id": items, "plays": range(1, len(rows) + 1)})
    weighted = prepare(
        table, tmp_path / "weighted", protocol="held-out-users", weight_column="plays"
    )
    settings: dict[str, Any] = {"neighbors": 3, "callback": Callback()}
    found = tune_model("itemknn", weighted, trials=8, output=tmp_path / "both", **settings)
    assert {trial.settings["ignore_weights"] for trial in found.trials} == {False, True}
    settings["ignore_weights"] = True
    found = tune_model("itemknn", weighted, trials=1, output=tmp_path / "one", **settings)
    assert "ignore_weights" not in found.trials[0].settings
    with raises(SettingError, "popularity", *(one for one in MODEL_NAMES if one != "popularity")):
        tune_model("popularity", weighted, output=tmp_path / "none")

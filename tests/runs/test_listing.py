"""The list of a folder's runs, made from config and log alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from socket import gethostname

import pytest

from foretaste.data import Dataset
from foretaste.errors import RunError
from foretaste.evaluation.result import Evaluation
from foretaste.runs import ListedRun, Run, list_runs
from foretaste.runs.config import FORMAT_VERSION
from tests.measure.test_tables import evaluation
from tests.messages import raises, says
from tests.runs.tiny import make_run


def finish(run: Run, found: Evaluation | None = None, **summary: object) -> None:
    """Log a test part and a summary, like the end of a training."""
    if found is not None:
        run.log.append("evaluation", epoch=None, evaluation=found.as_dict())
    run.log.finish(train_s=2.5, **summary)


@pytest.fixture
def folder(tmp_path: Path, dataset: Dataset) -> Path:
    """A trained run, a fitted one, an unfinished one, and a damaged one."""
    runs = {
        name: make_run(tmp_path / name, dataset)
        for name in ("a trained", "b fitted", "c begun", "d damaged")
    }
    found = evaluation(hr_10=0.5, ndcg_100=0.25)
    finish(runs["a trained"], found, select_by="hr@10", best_value=0.75)
    finish(runs["b fitted"], found, select_by=None, best_value=None)
    log = runs["d damaged"].log
    log.finish(train_s=1.0)
    log.path.write_text(log.path.read_text()[9:])
    (tmp_path / "no run").mkdir()
    return tmp_path


def by_name(listed: list[ListedRun]) -> dict[str, ListedRun]:
    return {run.path.name: run for run in listed}


def test_the_list_shows_settings_and_results_of_each_run(folder: Path, dataset: Dataset) -> None:
    listed = by_name(list_runs(folder))
    assert listed.keys() == {"a trained", "b fitted", "c begun", "d damaged"}
    trained, fitted = listed["a trained"], listed["b fitted"]
    assert (trained.model, trained.dataset) == ("popularity", dataset.path.name)
    assert (trained.metric, trained.validation, trained.test) == ("hr@10", 0.75, 0.5)
    assert (trained.state, trained.train_s) == ("finished", 2.5)
    assert (fitted.metric, fitted.validation, fitted.test) == ("ndcg@100", None, 0.25)


def test_unfinished_and_damaged_runs_are_marked(folder: Path) -> None:
    *_, last = listed = list_runs(folder)
    assert by_name(listed)["c begun"].state == "not finished"
    assert last.path.name == "d damaged"
    log = folder / "d damaged" / "metrics.jsonl"
    says(last.state, log, 1, re.compile("(?<=damaged: ).*"))
    (folder / "a trained" / "config.json").write_text("{}")
    (folder / "b fitted" / "metrics.jsonl").unlink()
    damaged = {run.path.name: run.state for run in list_runs(folder) if run.is_damaged}
    says(damaged["a trained"], folder / "a trained" / "config.json")
    says(damaged["b fitted"], folder / "b fitted" / "metrics.jsonl")


def test_a_run_of_another_format_is_not_reported_as_damaged(folder: Path) -> None:
    document = {"format": "foretaste run", "format_version": 99}
    path = folder / "a trained" / "config.json"
    path.write_text(json.dumps(document))
    says(by_name(list_runs(folder))["a trained"].state, path, 99, FORMAT_VERSION, "update")


def test_a_run_in_training_names_the_process(folder: Path) -> None:
    with Run.open(folder / "c begun").in_training():
        says(by_name(list_runs(folder))["c begun"].state, os.getpid(), gethostname())


def test_a_run_with_a_link_to_it_is_listed_once(folder: Path) -> None:
    before = [run.path for run in list_runs(folder)]
    (folder / "0 current").symlink_to("a trained")
    assert sorted(run.path for run in list_runs(folder)) == sorted(before)


def test_a_run_itself_is_listed_and_a_missing_folder_refused(folder: Path) -> None:
    (run,) = list_runs(folder / "a trained")
    assert run.metric == "hr@10"
    assert list_runs(folder / "no run") == []
    with raises(RunError, "no runs", folder / "no run"):
        list_runs(folder / "no runs")

"""The settings of a run are repeated: from experiment to shop."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.data.request import PrepareRequest
from foretaste.errors import RunError
from foretaste.models.ials.config import IALSConfig
from foretaste.models.linear.config import EaseConfig
from foretaste.models.neumf.config import GMFConfig
from foretaste.runs import Run
from foretaste.runs.log import MetricsLog
from foretaste.runs.run import load_model
from foretaste.testing import board_table
from foretaste.training import Callback, TrainingConfig, resume, train
from foretaste.training.auto import make_resumed_request
from foretaste.training.config import applies
from foretaste.training.request import TrainRequest, rerun_request
from tests.messages import raises
from tests.training.trainings import CONFIGS, events, run_of, trained_again, weights_of

ASKED = TrainingConfig(
    epochs=6, learning_rate=0.3, patience=2, target=0.9, seed=4, device="cpu", select_by="hr@5"
)


@pytest.fixture(scope="module")
def experiment(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = train(
        "gmf",
        dataset,
        model_config=GMFConfig(factors=3, negatives=2),
        config=ASKED,
        run=tmp_path_factory.mktemp("run") / "experiment",
    )
    return Run.open(run.path)


@pytest.fixture(scope="module")
def unvalidated(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Data with an order, a test part and no validation part."""
    path = tmp_path_factory.mktemp("unvalidated") / "data"
    config = PrepareConfig(protocol="leave-one-out", validation="none")
    return prepare(board_table(), path, config)


def summary_of(run: Run) -> dict[str, Any]:
    return run.log.read()[-1]


def test_settings_that_a_model_ignores_are_left_out_of_a_rerun(
    dataset: Dataset, tmp_path: Path
) -> None:
    run = train(
        "ials", dataset, config=TrainingConfig(epochs=1, device="cpu"), run=tmp_path / "run"
    )
    asked = rerun_request(Run.open(run.path)).config
    ignored = {one.name for one in fields(TrainingConfig) if not applies(one.name, IALSConfig)}
    assert ignored
    default = TrainingConfig()
    assert {name: getattr(asked, name) for name in ignored} == {
        name: getattr(default, name) for name in ignored
    }


def test_everything_is_repeated_for_as_many_epochs_as_were_best(experiment: Run) -> None:
    request = rerun_request(experiment)
    assert request.model == "gmf"
    assert request.model_config == GMFConfig(factors=3, negatives=2)
    expected = replace(
        ASKED,
        epochs=summary_of(experiment)["best_epoch"],
        batch_size=experiment.config.resolved["batch_size"],
        beta1=experiment.config.resolved["beta1"],
        beta2=experiment.config.resolved["beta2"],
        ema=0.0,
        learning_rate_schedule="constant",
        eval_every=summary_of(experiment)["best_epoch"],
        patience=0,
        target=None,
    )
    assert request.config == expected


def test_repeating_on_the_same_data_gives_the_same_weights(
    experiment: Run, dataset: Dataset, tmp_path: Path
) -> None:
    request = rerun_request(experiment)
    again = trained_again(request, dataset, tmp_path / "again")
    assert weights_of(again) == weights_of(experiment)


def test_a_rerun_follows_the_schedule_up_to_the_best_epoch(
    dataset: Dataset, tmp_path: Path
) -> None:
    config = TrainingConfig(
        epochs=12, learning_rate=0.3, learning_rate_schedule="cosine", device="cpu"
    )
    run = train("gmf", dataset, config=config, factors=3, run=tmp_path / "experiment")
    best = summary_of(run)["best_epoch"]
    assert best < 12
    request = rerun_request(run)
    assert (request.config.epochs, request.config.schedule_epochs) == (best, 12)
    again = trained_again(request, dataset, tmp_path / "again")
    rates = [
        [event["learning_rate"] for event in one.log.read() if event["event"] == "epoch"]
        for one in (run, again)
    ]
    assert rates[0][:best] == rates[1]
    assert rerun_request(again).config.schedule_epochs == 12


@pytest.mark.parametrize("name", CONFIGS)
def test_without_a_validation_part_no_epoch_is_chosen_on_test(
    name: str,
    unvalidated: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = run_of(name, unvalidated, tmp_path / "run", callback=Callback())
    assert [one["epoch"] for one in events(run, "evaluation")][:3] == [1, 2, 3]
    as_if = summary_of(run) | {"best_epoch": 3}
    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "summary", property(lambda log: as_if))
        request = rerun_request(run)
    again = trained_again(request, unvalidated, tmp_path / "again")
    assert {one["epoch"] for one in events(again, "evaluation")} == {3}
    assert summary_of(again)["best_epoch"] == 3
    assert "best epoch  the last: it alone is evaluated" in capsys.readouterr().err


def test_negatives_that_auto_chose_are_kept(dataset: Dataset, tmp_path: Path) -> None:
    config = TrainingConfig(epochs=1, device="cpu")
    run = train("gmf", dataset, config=config, factors=3, run=tmp_path / "run")
    chosen = max(4, dataset.train.num_items // 8)
    assert (run.config.asked["negatives"], run.config.resolved["negatives"]) == ("auto", chosen)
    assert chosen != 4
    for config in (
        make_resumed_request(TrainRequest.of_run(run), run, "cpu").model_config,
        rerun_request(run).model_config,
        load_model(run).config,
    ):
        assert config == GMFConfig(factors=3, negatives=chosen)


def test_repeating_on_everything_trains_to_the_end(
    experiment: Run, everything: Dataset, tmp_path: Path
) -> None:
    request = rerun_request(experiment)
    shop = trained_again(request, everything, tmp_path / "shop")
    assert summary_of(shop)["num_epochs"] == summary_of(experiment)["best_epoch"]
    assert shop.has_weights


def test_a_closed_form_is_repeated(dataset: Dataset, everything: Dataset, tmp_path: Path) -> None:
    config = TrainingConfig(device="cpu")
    run = train(
        "ease", dataset, model_config=EaseConfig(l2=7.0), config=config, run=tmp_path / "one"
    )
    request = rerun_request(Run.open(run.path))
    assert run.config.model_config["l2"] == 7.0
    assert request == TrainRequest(
        model="ease",
        data=PrepareRequest(source=dataset.path),
        model_config=EaseConfig(**run.config.model_config),
        config=replace(config, search=False),
    )
    assert trained_again(request, everything, tmp_path / "other").has_weights


def test_an_unfinished_run_is_refused(experiment: Run, tmp_path: Path) -> None:
    path = Path(shutil.copytree(experiment.path, tmp_path / "experiment"))
    log = path / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(lines[:-1]), encoding="utf-8")
    with raises(RunError, path):
        rerun_request(Run.open(path))


def test_a_run_that_another_process_has_just_finished_keeps_its_weights(
    experiment: Run, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process read an unfinished run, and then waited for its lock."""
    before = weights_of(experiment)
    settings = {"config": ASKED, "model_config": GMFConfig(factors=3, negatives=2)}
    monkeypatch.setattr(Run, "unfinished", classmethod(lambda _, path: Run.open(path)))
    run = train("gmf", dataset, run=experiment.path, **settings)  # type: ignore[arg-type]
    assert run.path == experiment.path
    assert weights_of(experiment) == before
    assert Run.open(experiment.path).is_finished


def test_a_new_run_that_another_process_has_just_trained_keeps_its_weights(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process made the run, and then waited for its lock."""
    in_training = Run.in_training
    theirs: list[bytes] = []

    def late(run: Run) -> AbstractContextManager[None]:
        monkeypatch.setattr(Run, "in_training", in_training)
        theirs.append(resume(run.path, callback=Callback()).log.path.read_bytes())
        return in_training(run)

    monkeypatch.setattr(Run, "in_training", late)
    run = run_of("popularity", dataset, tmp_path / "run")
    assert [run.log.path.read_bytes()] == theirs
    assert run.is_finished
